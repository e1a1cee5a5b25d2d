"""Find the first step at which two runs of a script differ by more than rounding. Pure.

A difference is relative: the norm of the difference of two arrays, divided by the norm of the first array. One rounding
of a float is about 1e-7. A *nudged* run, whose initial weights differ by one rounding, measures the effect of rounding
on the script. Sums over workers are rounded differently from sums in one process. So a difference of up to `TIMES` that
effect counts as rounding.
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
LEAST = {"w": 1e-6, "g": 1e-5}  # least effect of rounding on weights, and on gradients, whose terms may cancel out
GRADIENT = "gradient "  # prefix of a gradient's name
DRAWS = "draws"  # the numbers that the generators would draw after the step; not a weight
EPOCH = "epoch"  # the epoch after the step
HELD, END, NAMES = "held ", "end ", "names "  # prefixes of names of the script's variables: see `variables`
NOISE = 1e-3  # norms below this share of the largest norm of their kind are rounding noise
BEYOND = 0.02  # largest effect of rounding with which runs can be compared
TWICE = 1e-5  # difference allowed between two runs of one script
LEAST_ROUNDING, GROWS = 1e-8, 1000.0  # effect of rounding at the start, and its largest growth in a step
Arrays = Mapping[str, NDArray[np.float64]]
Key = tuple[int, int]  # a loop, and a step


@dataclass(frozen=True)
class Parting:
    """First step and array in which two runs differ.

    `missing`: the run that did not make the step; empty if each run made it.
    """

    at: Key
    name: str
    difference: float
    rounding: float
    missing: Literal["", "one", "members"] = ""


@dataclass(frozen=True)
class Comparison:
    """Result of the comparison of two runs.

    `difference`: largest difference of weights before the runs part. `rounding`: largest effect of rounding on the
    weights. `blind`: first step at which rounding alone is too large to compare; None if all steps were compared.
    """

    difference: float
    rounding: float
    parting: Parting | None = None
    blind: Key | None = None


def apart(one: Arrays, other: Arrays) -> dict[str, float]:
    """Return the relative differences of two runs' arrays, by name.

    A difference is infinite if `other` lacks the array or has NaNs at other places.
    """
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
    """Largest effect of rounding on each array up to a step, and the median of these effects."""

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
    """Compare the run in one process with the run on several workers, up to the first step that differs.

    `nudged`: run in one process that measures rounding. `members`: each worker's arrays of each step.
    """
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
            # a weight is easier to understand than a gradient; at a learning rate of 0 only gradients differ
            name = max(over, key=lambda each: (_kind(each) == "w", over[each]))
            return Comparison(largest, rounding.of_weights, Parting(key, name, differences[name], rounding.of(name)))
        largest = max([largest, *(value for name, value in differences.items() if _kind(name) == "w")])
    more = sorted(set(members) - set(one))
    if more:
        return Comparison(largest, rounding.of_weights, Parting(more[0], "", math.inf, 0.0, "one"))
    return Comparison(largest, rounding.of_weights)


def drew_alike(one: Arrays, others: Sequence[Arrays]) -> bool:
    """Whether all workers drew as many random numbers in the step as one process did.

    Then random draws are not the cause of a difference.
    """
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
    """Return the first difference of two runs in one process, or None.

    None is also returned if rounding differences grew gradually until they were large, as with too high a learning
    rate.
    """
    before = LEAST_ROUNDING
    for key in sorted(one):
        differences = apart(one[key], other.get(key, {}))
        name = max(differences, key=lambda each: differences[each], default="")
        if name and differences[name] > TWICE:
            return Parting(key, name, differences[name], 0.0) if differences[name] > GROWS * before else None
        before = max([before, *differences.values()])
    return None
