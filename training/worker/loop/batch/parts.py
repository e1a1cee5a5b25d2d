"""Divide a worker's share of a batch into parts that fit the worker's memory, if few workers share a large batch.

The script gets each part as a batch. When the script calls `step` for a part, the part's gradients are only added to a
buffer. After the last part, the buffered sums replace the trainer's gradients. So the sum over the workers and the
update use the whole share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dyntrain.training.worker.state.training_state import differentiable

SEVERAL_TRAINERS_ERROR = (
    "local_batch_at_most= with several trainers: a trainer needs the other's new weights, which exist only after the "
    "whole batch. Leave it out, and choose a batch that fits the memory of the fewest workers"
)
PARTS_ACCUMULATE_ERROR = (
    "local_batch_at_most= with accumulated gradients (grad_req='add'): leave one of them out. For k batches of n in "
    "one step, use global_batch=k * n"
)
REDUCED_IN_BATCH_ERROR = (
    "epoch.reduce() or epoch.sum() within a batch, with local_batch_at_most=: workers have different numbers of parts. "
    "Reduce after the loop over the batches"
)
SUMMED_LATE_ERROR = "epoch.sum() was called after trainer.step(): call it before, or use epoch.reduce(name, value)"
SUMMED_OUTSIDE_ERROR = (
    "epoch.sum() was called outside of the loop over the batches: use epoch.reduce(name, value) there"
)


def refuse_undividable_batches(trainers: Sequence[Any], accumulated: Sequence[Any]) -> None:
    """Raise ValueError if the script's batches cannot be divided into parts."""
    if len(trainers) > 1:
        raise ValueError(SEVERAL_TRAINERS_ERROR)
    if accumulated:
        raise ValueError(PARTS_ACCUMULATE_ERROR)


class GradientBuffer:
    """Sums of one trainer's gradients over the parts of a share so far; float16 gradients are summed in float32."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], Any] = {}  # (parameter, context)

    def add(self, trainer: Any, weights: Sequence[float]) -> None:
        """Add the current part's gradients to the sums, each multiplied by its device's weight, and mark the gradients
        as stale.
        """
        for index, param in enumerate(trainer._params):
            if not differentiable(param) or param.grad_req == "null":
                continue
            for device, (array, gradient) in enumerate(zip(param.list_data(), param.list_grad(), strict=True)):
                if not array._fresh_grad:
                    continue
                precise_gradient = gradient.astype("float32") if gradient.dtype == np.float16 else gradient
                weighted_gradient = precise_gradient * weights[device]
                if (index, device) in self._sums:
                    self._sums[index, device] += weighted_gradient
                else:
                    self._sums[index, device] = weighted_gradient
                array._fresh_grad = False

    def put_back(self, trainer: Any) -> None:
        """Copy the sums over all parts to the trainer's gradients, as if the parts were one batch."""
        for (index, device), gradient_sum in self._sums.items():
            gradient = trainer._params[index].list_grad()[device]
            gradient_sum.astype(gradient.dtype).copyto(gradient)
            trainer._params[index].list_data()[device]._fresh_grad = True
        self._sums.clear()
