"""Find the first step at which two runs of a script differ by more than rounding. Pure.

All differences are relative: the norm of the difference of two arrays, divided by the norm of the first array. One
rounding of a float32 makes a difference of about 1e-7. A *nudged* run, whose initial weights differ by one rounding,
measures the effect of rounding on the script. Sums over workers are rounded differently from sums in one process, so
small differences are no mistake. A difference is taken for rounding if it is at most `ROUNDING_FACTOR` times the
difference that the nudged run has from the run without nudge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import NDArray

ROUNDING_FACTOR = 20.0  # differences up to this many times the effect of rounding count as rounding
LEAST_EFFECT = {  # least effect of rounding on weights, and on gradients, whose terms may cancel out
    "w": 1e-6,
    "g": 1e-5,
}
GRADIENT = "gradient "  # prefix of a gradient's name
DRAWS = "draws"  # the numbers that the generators would draw after the step; not a weight
EPOCH = "epoch"  # the epoch after the step
HELD, END, NAMES = "held ", "end ", "names "  # prefixes of names of the script's variables: see `variables`
NOISE = 1e-3  # norms below this share of the largest norm of their kind are rounding noise
MOST_ROUNDING = 0.02  # largest effect of rounding with which runs can be compared
RERUN_DIFFERENCE = 1e-5  # difference allowed between two runs of one script
LEAST_ROUNDING, MOST_GROWTH = 1e-8, 1000.0  # effect of rounding at the start, and its largest growth in a step
Arrays = Mapping[str, NDArray[np.float64]]
Key = tuple[int, int]  # a loop, and a step


@dataclass(frozen=True)
class Divergence:
    """First step and array in which two runs differ.

    `missing`: the run that did not make the step, `one` or `members`, or empty if both runs made the step.
    """

    key: Key  # loop and step
    name: str  # of the array
    difference: float  # relative difference of the array in the two runs
    rounding: float  # effect of rounding on the array
    missing: Literal["", "one", "members"] = ""  # the run that did not make the step


@dataclass(frozen=True)
class Comparison:
    """Result of the comparison of a script's run in one process with its run on several workers.

    `difference`: largest relative difference of the weights, before the first step in which the runs differ.
    `rounding`: largest relative difference of the weights that rounding alone makes. `blind`: first step at which
    rounding alone makes the runs too different to compare, or None if all steps were compared.
    """

    difference: float  # largest relative difference of the weights
    rounding: float  # largest effect of rounding on the weights
    divergence: Divergence | None = None  # first difference of the runs
    blind: Key | None = None  # first step that cannot be compared


def relative_differences(arrays: Arrays, other_arrays: Arrays) -> dict[str, float]:
    """Return by name the relative difference between each array of one run and the same array of another run.

    The difference is infinite if `other_arrays` lacks the array, or if one of the two arrays is NaN where the other is
    not.
    """
    norms = {name: _norm(array) for name, array in arrays.items() if _array_kind(name) in LEAST_EFFECT}
    largest_norms = {
        kind: max((norms[name] for name in norms if _array_kind(name) == kind), default=0.0) for kind in LEAST_EFFECT
    }
    return {
        name: distance(arrays[name], other_arrays.get(name), NOISE * largest_norms[_array_kind(name)]) for name in norms
    }


def distance(array: NDArray[np.float64], other_array: NDArray[np.float64] | None, least_norm: float = 0.0) -> float:
    """Return the norm of two arrays' difference, divided by the first array's norm or by `least_norm`, whichever is
    larger.
    """
    if other_array is None or other_array.shape != array.shape:
        return math.inf
    finite_mask = np.isfinite(array)
    if not np.array_equal(finite_mask, np.isfinite(other_array)):
        return math.inf
    difference_norm = float(np.linalg.norm(array[finite_mask] - other_array[finite_mask]))
    divisor_norm = max(_norm(array), least_norm)
    return 0.0 if not difference_norm else (difference_norm / divisor_norm if divisor_norm else math.inf)


def _norm(array: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(array[np.isfinite(array)]))


def _array_kind(name: str) -> str:
    if name in (DRAWS, EPOCH) or name.startswith((HELD, END, NAMES)):
        return ""
    return "g" if name.startswith(GRADIENT) else "w"


class Rounding:
    """Largest relative difference that rounding makes in each array up to a step, and the median over the arrays."""

    def __init__(self) -> None:
        self._largest: dict[str, float] = {}

    def add(self, differences: Mapping[str, float]) -> None:
        for name, difference in differences.items():
            self._largest[name] = max(difference, self._largest.get(name, 0.0))

    def median_effect(self, kind: str) -> float:
        return median([effect for name, effect in self._largest.items() if _array_kind(name) == kind] or [0.0])

    def effect_on(self, name: str) -> float:
        return max(self._largest.get(name, 0.0), self.median_effect(_array_kind(name)))

    def tolerance(self, name: str) -> float:
        return ROUNDING_FACTOR * max(self.effect_on(name), LEAST_EFFECT[_array_kind(name)])

    @property
    def largest_weight_effect(self) -> float:
        return max((effect for name, effect in self._largest.items() if _array_kind(name) == "w"), default=0.0)


def compare(
    one_process: Mapping[Key, Arrays], nudged: Mapping[Key, Arrays], members: Mapping[Key, Sequence[Arrays]]
) -> Comparison:
    """Compare a script's run in one process with its run on several workers, up to the first step in which the runs
    differ.

    `nudged`: a run in one process with slightly changed initial weights, which measures the effect of rounding.
    `members`: in the run on several workers, each worker's arrays of each step.
    """
    rounding, largest_difference = Rounding(), 0.0
    for key in sorted(one_process):
        nudge_effects = relative_differences(one_process[key], nudged.get(key, {}))
        rounding.add(nudge_effects)
        if any(rounding.median_effect(kind) > MOST_ROUNDING for kind in LEAST_EFFECT) or not _is_finite(
            one_process[key]
        ):
            return Comparison(largest_difference, rounding.largest_weight_effect, blind=key)
        if not members.get(key):
            return Comparison(
                largest_difference, rounding.largest_weight_effect, Divergence(key, "", math.inf, 0.0, "members")
            )
        differences = _largest_differences(
            relative_differences(one_process[key], worker_arrays) for worker_arrays in members[key]
        )
        excesses = {
            name: difference / rounding.tolerance(name)
            for name, difference in differences.items()
            if difference > rounding.tolerance(name)
        }
        if excesses:
            # a weight is easier to understand than a gradient; at a learning rate of 0 only gradients differ
            name = max(excesses, key=lambda array_name: (_array_kind(array_name) == "w", excesses[array_name]))
            return Comparison(
                largest_difference,
                rounding.largest_weight_effect,
                Divergence(key, name, differences[name], rounding.effect_on(name)),
            )
        largest_difference = max(
            [largest_difference, *(difference for name, difference in differences.items() if _array_kind(name) == "w")]
        )
    extra_keys = sorted(set(members) - set(one_process))
    if extra_keys:
        return Comparison(
            largest_difference, rounding.largest_weight_effect, Divergence(extra_keys[0], "", math.inf, 0.0, "one")
        )
    return Comparison(largest_difference, rounding.largest_weight_effect)


def draws_match(one_process: Arrays, workers_arrays: Sequence[Arrays]) -> bool:
    """Whether each worker drew as many random numbers in a step as the script drew in one process.

    If the numbers of draws are equal, random draws are not the cause of a difference.
    """
    no_draws = np.zeros(0)
    return all(
        np.array_equal(one_process.get(DRAWS, no_draws), worker_arrays.get(DRAWS, no_draws))
        for worker_arrays in workers_arrays
    )


def _largest_differences(all_differences: Iterable[Mapping[str, float]]) -> dict[str, float]:
    largest_differences: dict[str, float] = {}
    for differences in all_differences:
        for name, difference in differences.items():
            largest_differences[name] = max(difference, largest_differences.get(name, 0.0))
    return largest_differences


def _is_finite(arrays: Arrays) -> bool:
    return all(bool(np.isfinite(array).all()) for name, array in arrays.items() if _array_kind(name) in LEAST_EFFECT)


def first_divergence(run: Mapping[Key, Arrays], other_run: Mapping[Key, Arrays]) -> Divergence | None:
    """Return the first difference of two runs of the script in one process, or None if the runs are equal.

    The result is also None if tiny differences by rounding have grown step by step, as with too high a learning rate.
    """
    largest_difference = LEAST_ROUNDING
    for key in sorted(run):
        differences = relative_differences(run[key], other_run.get(key, {}))
        name = max(differences, key=lambda array_name: differences[array_name], default="")
        if name and differences[name] > RERUN_DIFFERENCE:
            return (
                Divergence(key, name, differences[name], 0.0)
                if differences[name] > MOST_GROWTH * largest_difference
                else None
            )
        largest_difference = max([largest_difference, *differences.values()])
    return None
