"""The difference between two runs of a script, by step, and the first step where it exceeds rounding. Pure.

A difference is relative: the norm of the difference of two arrays, divided by the norm of the first; 1e-7 is a rounding
of floats. The effect of rounding on a script is measured by a run whose initial weights differ by one rounding. Sums
over workers are rounded differently from a sum in one process, so up to `TIMES` that effect counts as rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import NDArray

TIMES = 20.0
LEAST = {"w": 1e-6, "g": 1e-5}  # relative rounding of weights, and of gradients, in which samples cancel out
GRADIENT = "gradient "  # prefix of a gradient's name
DRAWS = "draws"  # the numbers that the generators would draw after the step; not a weight
EPOCH = "epoch"  # the epoch after the step
HELD, END, NAMES = "held ", "end ", "names "  # prefixes of names of the script's variables: see `variables`
NOISE = 1e-3  # a norm below this share of the largest of its kind counts as rounding noise
BEYOND = 0.02  # if rounding alone makes more, nothing can be compared
TWICE = 1e-5  # difference allowed between two runs of one script
LEAST_ROUNDING, GROWS = 1e-8, 1000.0  # rounding grows at most by this factor in a step
Arrays = Mapping[str, NDArray[np.float64]]
Key = tuple[int, int]  # a loop, and a step


@dataclass(frozen=True)
class Parting:
    """Where two runs part; `missing` says which of them has not made the step, if one has not."""

    at: Key
    name: str
    difference: float
    rounding: float
    missing: Literal["", "one", "members"] = ""


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    `difference` and `rounding` are the largest of the weights before they part. `blind` is the step from which on
    rounding alone is too large to compare; None if all steps were compared.
    """

    difference: float
    rounding: float
    parting: Parting | None = None
    blind: Key | None = None


def apart(one: Arrays, other: Arrays) -> dict[str, float]:
    """Return the differences by name; infinite for an array that `other` lacks, or with NaNs in other places."""
    norms = {name: _norm(array) for name, array in one.items() if _kind(name) in LEAST}
    largest = {kind: max((norms[name] for name in norms if _kind(name) == kind), default=0.0) for kind in LEAST}
    return {name: distance(one[name], other.get(name), NOISE * largest[_kind(name)]) for name in norms}


def distance(array: NDArray[np.float64], there: NDArray[np.float64] | None, least: float = 0.0) -> float:
    """Return the norm of the difference, divided by the norm of the first array, or by `least` if that is larger."""
    if there is None or there.shape != array.shape:
        return math.inf
    there_is = np.isfinite(array)
    if not np.array_equal(there_is, np.isfinite(there)):
        return math.inf
    apart_by = float(np.linalg.norm(array[there_is] - there[there_is]))
    size = max(_norm(array), least)
    return 0.0 if not apart_by else (apart_by / size if size else math.inf)


def _norm(array: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(array[np.isfinite(array)]))


def _kind(name: str) -> str:
    if name in (DRAWS, EPOCH) or name.startswith((HELD, END, NAMES)):
        return ""
    return "g" if name.startswith(GRADIENT) else "w"


class Rounding:
    """The effect of rounding up to a step: on each array, and on a usual one (the median)."""

    def __init__(self) -> None:
        self._largest: dict[str, float] = {}

    def see(self, differences: Mapping[str, float]) -> None:
        for name, value in differences.items():
            self._largest[name] = max(value, self._largest.get(name, 0.0))

    def usual(self, kind: str) -> float:
        return median([value for name, value in self._largest.items() if _kind(name) == kind] or [0.0])

    def of(self, name: str) -> float:
        return max(self._largest.get(name, 0.0), self.usual(_kind(name)))

    def bound(self, name: str) -> float:
        return TIMES * max(self.of(name), LEAST[_kind(name)])

    @property
    def of_weights(self) -> float:
        return max((value for name, value in self._largest.items() if _kind(name) == "w"), default=0.0)


def compare(
    one: Mapping[Key, Arrays], nudged: Mapping[Key, Arrays], members: Mapping[Key, Sequence[Arrays]]
) -> Comparison:
    """Compare one process with members, up to where they part; `members` has each worker's arrays of each step."""
    rounding, largest = Rounding(), 0.0
    for key in sorted(one):
        alone = apart(one[key], nudged.get(key, {}))
        rounding.see(alone)
        if any(rounding.usual(kind) > BEYOND for kind in LEAST) or not _finite(one[key]):
            return Comparison(largest, rounding.of_weights, blind=key)
        if not members.get(key):
            return Comparison(largest, rounding.of_weights, Parting(key, "", math.inf, 0.0, "members"))
        differences = _furthest(apart(one[key], each) for each in members[key])
        over = {
            name: value / rounding.bound(name) for name, value in differences.items() if value > rounding.bound(name)
        }
        if over:
            # a weight is clearer to people; if it has not changed yet, as at rate 0, its gradient shows the difference
            name = max(over, key=lambda each: (_kind(each) == "w", over[each]))
            return Comparison(largest, rounding.of_weights, Parting(key, name, differences[name], rounding.of(name)))
        largest = max([largest, *(value for name, value in differences.items() if _kind(name) == "w")])
    more = sorted(set(members) - set(one))
    if more:
        return Comparison(largest, rounding.of_weights, Parting(more[0], "", math.inf, 0.0, "one"))
    return Comparison(largest, rounding.of_weights)


def drew_alike(one: Arrays, others: Sequence[Arrays]) -> bool:
    """Whether all drew equally many numbers in the step: then random draws are not why they part."""
    none = np.zeros(0)
    return all(np.array_equal(one.get(DRAWS, none), other.get(DRAWS, none)) for other in others)


def _furthest(each: Iterable[Mapping[str, float]]) -> dict[str, float]:
    largest: dict[str, float] = {}
    for one in each:
        for name, value in one.items():
            largest[name] = max(value, largest.get(name, 0.0))
    return largest


def _finite(arrays: Arrays) -> bool:
    return all(bool(np.isfinite(array).all()) for name, array in arrays.items() if _kind(name) in LEAST)


def first_apart(one: Mapping[Key, Arrays], other: Mapping[Key, Arrays]) -> Parting | None:
    """Return where two runs in one process begin to differ, or None.

    It is None if they do not differ, or if differences of rounding grew from step to step until they were large, as
    with a learning rate that is too high.
    """
    before = LEAST_ROUNDING
    for key in sorted(one):
        differences = apart(one[key], other.get(key, {}))
        name = max(differences, key=lambda each: differences[each], default="")
        if name and differences[name] > TWICE:
            return Parting(key, name, differences[name], 0.0) if differences[name] > GROWS * before else None
        before = max([before, *differences.values()])
    return None
