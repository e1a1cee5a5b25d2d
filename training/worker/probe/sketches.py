"""Gradients in a few numbers that add up as they do, and whether those of a batch are those of its parts. Pure.

Sums over blocks of a gradient's numbers: what is added up, or multiplied, shows in them as it would in all numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCKS = 256  # of one gradient
PIECE = 1 << 20  # numbers
# A gradient that cancels out, as that of a bias below a norm, is what rounding left of it: below this, against the
# largest one, nothing is compared
NOISE = 1e-4


@dataclass(frozen=True)
class Sketch:
    """Of one gradient: its norm, and the sums over its blocks."""

    norm: float
    sums: tuple[float, ...]


def sketch(gradient: NDArray[Any]) -> Sketch:
    """Of an array of any shape. It may be as large as a model: of no more than a piece there is a copy."""
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
    """The parts' gradients of the parameter `name` together differ from the whole's by this `share` of it."""

    name: str
    share: float


def difference(
    whole: Mapping[str, Sketch],
    parts: Sequence[tuple[float, Mapping[str, Sketch]]],
    names: Mapping[str, str],
    tolerance: float,
) -> Difference | None:
    """The largest one among the gradients with these `names`; `parts` with what each counts. None: they add up. Raises
    ValueError where they are no numbers.
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
