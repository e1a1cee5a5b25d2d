"""Find how a script changes its worker's gradients before they are summed over the workers.

Gradients multiplied by a number still add up if all workers use the same number. Clipped gradients do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from dyntrain.training.checks.findings import Place

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.batch.current_batch import CurrentBatch

ROUNDING = 16  # allowed difference, in units of the dtype's resolution
NEAR = 1e-6  # relative difference of one factor between two workers


@dataclass
class Raw:
    """A gradient, and its copy from before the script's first change in the line `place`.

    `masked`: the script set parts to zero.
    """

    gradient: Any
    before: Any
    place: Place | None
    masked: bool = False


def remember(current: CurrentBatch, gradient: Any, place: Place | None = None) -> None:
    """Copy a gradient that the script may change now."""
    if (raw := current.raw.get(id(gradient))) is None:
        current.raw[id(gradient)] = Raw(gradient, gradient.copy(), place)
    else:
        raw.place = raw.place or place


def remember_masked(current: CurrentBatch, gradient: Any) -> None:
    if (raw := current.raw.get(id(gradient))) is not None:
        raw.masked = True


def factor_of(raw: Raw, gradient: Any) -> float | Literal["clip", "other"] | None:
    """Return the factor by which a gradient was multiplied, or the kind of another change, or None if unknown."""
    before, after = (each.asnumpy().reshape(-1).astype(np.float64) for each in (raw.before, gradient))
    if raw.masked:
        before, after = before[after != 0], after[after != 0]
    if not (np.isfinite(before).all() and np.isfinite(after).all() and before.any() and after.any()):
        return None
    factor = float(before @ after / (before @ before))
    residual = float(np.linalg.norm(after - factor * before))
    if residual <= ROUNDING * float(np.finfo(gradient.dtype).eps) * float(np.linalg.norm(after)):
        return factor
    return "clip" if np.array_equal(after, np.clip(before, after.min(), after.max())) else "other"


def in_digits(factor: float) -> str | None:
    """Return the factor as text to compare on all workers, or None if rounding may change the text between workers."""
    texts = {f"{factor * (1 + shift):.4g}" for shift in (-NEAR, 0.0, NEAR)}
    return texts.pop() if len(texts) == 1 and math.isfinite(factor) else None
