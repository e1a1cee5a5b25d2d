"""Gradients of a share that a script changes before they are summed: what they were, and what was made of them.

Multiplied by a number they still add up, if all workers multiply by the same one. Clipped they do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from dyntrain.training.checks.findings import Place

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.batch.current_batch import CurrentBatch

ROUNDING = 16  # times what the kind of number resolves
NEAR = 1e-6  # of a number whose last digit may be another one on another worker


@dataclass
class Raw:
    """A gradient before the script's first change, which is `at` a line of it; `masked`: parts were set to zero."""

    gradient: Any
    before: Any
    at: Place | None
    masked: bool = False


def remember(current: CurrentBatch, gradient: Any, at: Place | None = None) -> None:
    """It may be changed now."""
    if (raw := current.raw.get(id(gradient))) is None:
        current.raw[id(gradient)] = Raw(gradient, gradient.copy(), at)
    else:
        raw.at = raw.at or at


def remember_masked(current: CurrentBatch, gradient: Any) -> None:
    if (raw := current.raw.get(id(gradient))) is not None:
        raw.masked = True


def factor_of(raw: Raw, gradient: Any) -> float | Literal["clip", "other"] | None:
    """By what it was multiplied. None: nothing can be said of it."""
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
    """As workers say it to each other. None: rounding could make it another one there."""
    texts = {f"{factor * (1 + by):.4g}" for by in (-NEAR, 0.0, NEAR)}
    return texts.pop() if len(texts) == 1 and math.isfinite(factor) else None
