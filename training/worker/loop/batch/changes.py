"""Gradients of a share that a script changes before they are summed: their values before, and the kind of change.

Gradients multiplied by a number still add up if all workers have the same number. Clipped ones do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from dyntrain.training.checks.findings import Place

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.batch.current_batch import CurrentBatch

ROUNDING = 16  # times the resolution of the dtype
NEAR = 1e-6  # relative: the number's last digit may differ on another worker


@dataclass
class Raw:
    """Gradient before the script's first change, at its line `at`; `masked`: parts were set to zero."""

    gradient: Any
    before: Any
    at: Place | None
    masked: bool = False


def remember(current: CurrentBatch, gradient: Any, at: Place | None = None) -> None:
    """Copy the gradient, which the script may change now."""
    if (raw := current.raw.get(id(gradient))) is None:
        current.raw[id(gradient)] = Raw(gradient, gradient.copy(), at)
    else:
        raw.at = raw.at or at


def remember_masked(current: CurrentBatch, gradient: Any) -> None:
    if (raw := current.raw.get(id(gradient))) is not None:
        raw.masked = True


def factor_of(raw: Raw, gradient: Any) -> float | Literal["clip", "other"] | None:
    """Number by which the gradient was multiplied, or the kind of another change; None if that is unknown."""
    before, after = (each.asnumpy().reshape(-1).astype(np.float64) for each in (raw.before, gradient))
    if raw.masked:
        before, after = before[after != 0], after[after != 0]
    if not (np.isfinite(before).all() and np.isfinite(after).all() and before.any() and after.any()):
        return None
    factor = float(before @ after / (before @ before))
    off = float(np.linalg.norm(after - factor * before))
    if off <= ROUNDING * float(np.finfo(gradient.dtype).eps) * float(np.linalg.norm(after)):
        return factor
    return "clip" if np.array_equal(after, np.clip(before, after.min(), after.max())) else "other"


def in_digits(factor: float) -> str | None:
    """The factor as workers compare it; None if rounding could change its text on another worker."""
    texts = {f"{factor * (1 + by):.4g}" for by in (-NEAR, 0.0, NEAR)}
    return texts.pop() if len(texts) == 1 and math.isfinite(factor) else None
