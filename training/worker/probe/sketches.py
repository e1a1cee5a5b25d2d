"""Gradients in a few numbers that add up as they do, to compare those of a batch with those of its parts. Pure.

The numbers are sums over blocks of a gradient: additions and multiplications show in them as in all numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCKS = 256  # blocks of one gradient
PIECE = 1 << 20  # numbers
# A gradient that cancels out, as that of a bias below a norm, is only rounding errors: below this share of the
# largest one, nothing is compared
NOISE = 1e-4


@dataclass(frozen=True)
class Sketch:
    """Norm of one gradient, and the sums over its blocks."""

    norm: float
    sums: tuple[float, ...]


def sketch(gradient: NDArray[Any]) -> Sketch:
    """Sketch of an array of any shape. It may be as large as a model, so no more than a piece is copied at once."""
    flat = gradient.reshape(-1)
    if not flat.size:
        return Sketch(0.0, ())
    starts = np.linspace(0, flat.size, min(flat.size, BLOCKS), endpoint=False).astype(np.int64)
    pieces = (flat[at : at + PIECE].astype(np.float64) for at in range(0, flat.size, PIECE))
    with np.errstate(all="ignore"):
        square = sum(float(piece @ piece) for piece in pieces)
        return Sketch(math.sqrt(square), tuple(np.add.reduceat(flat, starts, dtype=np.float64).tolist()))


@dataclass(frozen=True)
class Difference:
    """The parts' gradients of parameter `name` together differ from the whole's by this `share` of it."""

    name: str
    share: float


def difference(
    whole: Mapping[str, Sketch],
    parts: Sequence[tuple[float, Mapping[str, Sketch]]],
    names: Mapping[str, str],
    tolerance: float,
) -> Difference | None:
    """Largest difference among the gradients with these `names`; None if they add up.

    `parts`: weight and gradients of each. Raises ValueError if gradients are not finite.
    """
    differences = list[Difference]()
    sizes = {key: max(whole[key].norm, sum(weight * part[key].norm for weight, part in parts)) for key in names}
    if not all(math.isfinite(size) for size in sizes.values()):
        raise ValueError("gradients are not finite")
    least = NOISE * max(sizes.values(), default=0.0)
    for key, size in sizes.items():
        one = np.array(whole[key].sums)
        other = np.sum([weight * np.array(part[key].sums) for weight, part in parts], axis=0)
        if size > least and (share := float(np.linalg.norm(one - other)) / size) > tolerance:
            differences.append(Difference(names[key], share))
    return max(differences, key=lambda each: each.share, default=None)
