"""How far two runs of a script are apart, step by step, and from where on that is more than rounding. Pure.

A difference is the norm of what two arrays differ by, over the norm of the first: 1e-7 is a rounding of floats. What
rounding does to a script is seen in a run whose weights began one rounding apart. Sums over workers are rounded
otherwise than a sum in one process, so up to `TIMES` as much is taken for rounding.
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
LEAST = {"w": 1e-6, "g": 1e-5}  # relative: of weights, and of gradients, in which samples cancel out
GRADIENT = "gradient "  # before the name of one
DRAWS = "draws"  # of a step: what the generators draw next, which is no weight
EPOCH = "epoch"  # that the step has led to
HELD, END, NAMES = "held ", "end ", "names "  # before names of the script's variables: `variables`
NOISE = 1e-3  # an array that is smaller than this against the largest of its kind is what rounding left
BEYOND = 0.02  # where rounding alone makes more, nothing can be told
TWICE = 1e-5  # what two runs of one script may differ by
LEAST_ROUNDING, GROWS = 1e-8, 1000.0  # a step makes no more of a difference than so many times as much
Arrays = Mapping[str, NDArray[np.float64]]
Key = tuple[int, int]  # a loop, and a step


@dataclass(frozen=True)
class Parting:
    """`missing`: who has not made the step."""

    at: Key
    name: str
    difference: float
    rounding: float
    missing: Literal["", "one", "members"] = ""


@dataclass(frozen=True)
class Comparison:
    """`difference` and `rounding`: the largest of the weights, before they part. `blind`: from which step on rounding
    alone makes more than can be compared; None: all of them were.
    """

    difference: float
    rounding: float
    parting: Parting | None = None
    blind: Key | None = None


def apart(one: Arrays, other: Arrays) -> dict[str, float]:
    """By names. What one has not got is infinitely far, and so is a number from what is none."""
    norms = {name: _norm(array) for name, array in one.items() if _kind(name) in LEAST}
    largest = {kind: max((norms[name] for name in norms if _kind(name) == kind), default=0.0) for kind in LEAST}
    return {name: distance(one[name], other.get(name), NOISE * largest[_kind(name)]) for name in norms}


def distance(array: NDArray[np.float64], there: NDArray[np.float64] | None, least: float = 0.0) -> float:
    """Over the norm of the first, or over `least` where that is more."""
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
    """What it makes of each array, up to a step: of this one, and of a usual one."""

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
    """`members`: of each step, what each worker had."""
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
            # a weight says more to people; one that has not moved yet, as at a rate of 0, shows in its gradient
            name = max(over, key=lambda each: (_kind(each) == "w", over[each]))
            return Comparison(largest, rounding.of_weights, Parting(key, name, differences[name], rounding.of(name)))
        largest = max([largest, *(value for name, value in differences.items() if _kind(name) == "w")])
    more = sorted(set(members) - set(one))
    if more:
        return Comparison(largest, rounding.of_weights, Parting(more[0], "", math.inf, 0.0, "one"))
    return Comparison(largest, rounding.of_weights)


def drew_alike(one: Arrays, others: Sequence[Arrays]) -> bool:
    """Whether as much was drawn in the step by all: then what they part by are no draws."""
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
    """Where two runs in one process are no longer the same. None: at no step, or what was rounded otherwise has grown
    from step to step until it was large, as at a rate that is too high.
    """
    before = LEAST_ROUNDING
    for key in sorted(one):
        differences = apart(one[key], other.get(key, {}))
        name = max(differences, key=lambda each: differences[each], default="")
        if name and differences[name] > TWICE:
            return Parting(key, name, differences[name], 0.0) if differences[name] > GROWS * before else None
        before = max([before, *differences.values()])
    return None
