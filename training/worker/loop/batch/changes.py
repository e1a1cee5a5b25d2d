"""Find how a script changes its worker's gradients before they are summed over the workers.

Gradients that all workers multiply by the same number still sum to a right result, but clipped gradients do not.
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
FACTOR_TOLERANCE = 1e-6  # relative difference of one factor between two workers


@dataclass
class UnsummedGradient:
    """A gradient, and its copy from before the script's first change."""

    gradient: Any
    before: Any  # copy of the unchanged gradient
    place: Place | None  # line of the script's first change
    masked: bool = False  # whether the script set elements to zero


def copy_gradient(batch: CurrentBatch, gradient: Any, place: Place | None = None) -> None:
    """Copy a gradient before the script changes it for the first time in the batch; later changes make no copy."""
    if (raw_gradient := batch.raw.get(id(gradient))) is None:
        batch.raw[id(gradient)] = UnsummedGradient(gradient, gradient.copy(), place)
    else:
        raw_gradient.place = raw_gradient.place or place


def mark_masked(batch: CurrentBatch, gradient: Any) -> None:
    if (raw_gradient := batch.raw.get(id(gradient))) is not None:
        raw_gradient.masked = True


def factor_of(raw: UnsummedGradient, gradient: Any) -> float | Literal["clip", "other"] | None:
    """Return the factor by which the script multiplied a gradient, "clip" or "other" for other changes, or None if
    unknown.
    """
    numbers_before, numbers_after = (array.asnumpy().reshape(-1).astype(np.float64) for array in (raw.before, gradient))
    if raw.masked:
        numbers_before, numbers_after = numbers_before[numbers_after != 0], numbers_after[numbers_after != 0]
    if not (
        np.isfinite(numbers_before).all()
        and np.isfinite(numbers_after).all()
        and numbers_before.any()
        and numbers_after.any()
    ):
        return None
    factor = float(numbers_before @ numbers_after / (numbers_before @ numbers_before))
    residual = float(np.linalg.norm(numbers_after - factor * numbers_before))
    if residual <= ROUNDING * float(np.finfo(gradient.dtype).eps) * float(np.linalg.norm(numbers_after)):
        return factor
    return (
        "clip"
        if np.array_equal(numbers_after, np.clip(numbers_before, numbers_after.min(), numbers_after.max()))
        else "other"
    )


def factor_text(factor: float) -> str | None:
    """Return the factor as text to compare on all workers, or None if rounding may change the text between workers."""
    texts = {f"{factor * (1 + deviation):.4g}" for deviation in (-FACTOR_TOLERANCE, 0.0, FACTOR_TOLERANCE)}
    return texts.pop() if len(texts) == 1 and math.isfinite(factor) else None
