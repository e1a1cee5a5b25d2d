"""Divide a worker's share of a batch into parts, so that few workers need no more memory than many.

The script gets each part as a batch. At its step, the gradients of a part are only added to a buffer. At the last part
the sums are put back, so that the sum over the workers and the update are those of the whole share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dyntrain.training.worker.state.training_state import differentiable

SEVERAL_TRAINERS = (
    "local_batch_at_most= with several trainers: a trainer needs the other's new weights, which exist only after the "
    "whole batch. Leave it out, and choose a batch that fits the memory of the fewest workers"
)
ADDS_UP = (
    "local_batch_at_most= with accumulated gradients (grad_req='add'): leave one of them out. For k batches of n in "
    "one step, use global_batch=k * n"
)
REDUCED_WITHIN = (
    "epoch.reduce() or epoch.sum() within a batch, with local_batch_at_most=: workers have different numbers of parts. "
    "Reduce after the loop over the batches"
)
SUMMED_LATE = "epoch.sum() was called after trainer.step(): call it before, or use epoch.reduce(name, value)"
SUMMED_OUTSIDE = "epoch.sum() was called outside of the loop over the batches: use epoch.reduce(name, value) there"


def refuse_unfit(trainers: Sequence[Any], accumulated: Sequence[Any]) -> None:
    """Raise ValueError if the script's batches cannot be divided."""
    if len(trainers) > 1:
        raise ValueError(SEVERAL_TRAINERS)
    if accumulated:
        raise ValueError(ADDS_UP)


class GradientBuffer:
    """Sum of one trainer's gradients over the parts so far, in float32 at least."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], Any] = {}  # (parameter, context)

    def add(self, trainer: Any, weights: Sequence[float]) -> None:
        """Add the current part's gradients, times each device's weight, to the sums; mark the gradients as stale."""
        for i, param in enumerate(trainer._params):
            if not differentiable(param) or param.grad_req == "null":
                continue
            for c, (data, gradient) in enumerate(zip(param.list_data(), param.list_grad(), strict=True)):
                if not data._fresh_grad:
                    continue
                precise = gradient.astype("float32") if gradient.dtype == np.float16 else gradient
                weighted = precise * weights[c]
                if (i, c) in self._sums:
                    self._sums[i, c] += weighted
                else:
                    self._sums[i, c] = weighted
                data._fresh_grad = False

    def put_back(self, trainer: Any) -> None:
        """Copy the sums to the gradients, as if the parts were one batch."""
        for (i, c), total in self._sums.items():
            gradient = trainer._params[i].list_grad()[c]
            total.astype(gradient.dtype).copyto(gradient)
            trainer._params[i].list_data()[c]._fresh_grad = True
        self._sums.clear()
