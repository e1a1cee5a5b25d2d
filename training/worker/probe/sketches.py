"""Sketches: a few sums over each gradient, to compare a batch's gradients with the gradients of its parts. Pure.

A sketch contains sums over blocks of the gradient, so the sketch of a sum of gradients is the sum of their sketches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCKS = 256  # blocks of one gradient
PIECE_NUMBERS = 1 << 20  # most numbers that are copied at once
# A gradient whose terms cancel out, such as a bias before a norm, has only rounding errors. So gradients below this
# share of the largest one are not compared.
LEAST_NORM_RATIO = 1e-4


@dataclass(frozen=True)
class Sketch:
    """Norm of one gradient, and the sums over its blocks."""

    norm: float  # of the gradient
    sums: tuple[float, ...]  # over the gradient's blocks


def sketch(gradient: NDArray[Any]) -> Sketch:
    """Return the sketch of a gradient of any shape.

    A gradient may be very large, so at most PIECE_NUMBERS of its numbers are copied at once.
    """
    flat_gradient = gradient.reshape(-1)
    if not flat_gradient.size:
        return Sketch(0.0, ())
    starts = np.linspace(0, flat_gradient.size, min(flat_gradient.size, BLOCKS), endpoint=False).astype(np.int64)
    pieces = (
        flat_gradient[start : start + PIECE_NUMBERS].astype(np.float64)
        for start in range(0, flat_gradient.size, PIECE_NUMBERS)
    )
    with np.errstate(all="ignore"):
        squared_norm = sum(float(piece @ piece) for piece in pieces)
        return Sketch(math.sqrt(squared_norm), tuple(np.add.reduceat(flat_gradient, starts, dtype=np.float64).tolist()))


@dataclass(frozen=True)
class Difference:
    """Relative difference between a parameter's gradient for the whole batch and the sum of its gradients for the
    parts.
    """

    name: str  # of the parameter
    share: float  # the difference's norm, divided by the gradient's norm


def largest_difference(
    whole: Mapping[str, Sketch],
    parts: Sequence[tuple[float, Mapping[str, Sketch]]],
    names: Mapping[str, str],
    tolerance: float,
) -> Difference | None:
    """Compare the whole batch's gradients with the weighted sum of the parts' gradients.

    Returns the largest relative difference of a parameter, or None if no difference is above `tolerance`.

    `parts`: weight and gradients' sketches of each part. `names`: the names of the parameters to compare, by key.
    Raises ValueError if gradients are not finite.
    """
    differences = list[Difference]()
    norms = {key: max(whole[key].norm, sum(weight * part[key].norm for weight, part in parts)) for key in names}
    if not all(math.isfinite(norm) for norm in norms.values()):
        raise ValueError("gradients are not finite")
    least_norm = LEAST_NORM_RATIO * max(norms.values(), default=0.0)
    for key, norm in norms.items():
        whole_sums = np.array(whole[key].sums)
        parts_sums = np.sum([weight * np.array(part[key].sums) for weight, part in parts], axis=0)
        if norm > least_norm and (share := float(np.linalg.norm(whole_sums - parts_sums)) / norm) > tolerance:
            differences.append(Difference(names[key], share))
    return max(differences, key=lambda one_difference: one_difference.share, default=None)
