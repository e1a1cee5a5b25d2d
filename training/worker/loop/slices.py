"""Divide a worker's share of a batch among several devices: `gluon.utils.split_and_load`.

Gluon refuses a batch that does not divide evenly among the devices, or that has fewer samples than there are devices. A
share is often such a batch. So within a batch the slices may be uneven, and fewer than the devices. A device without
samples has no part in the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.worker.loop.batch.thread_context import thread_context
from dyntrain.training.worker.loop.instrument import Listener, Method

MEANS_ADD_UP = (
    "loss='mean' where gradients add up (grad_req='add', accumulate=) on several devices, which have unequal slices: "
    "leave .mean() and loss='mean' out, and pass the batch size to trainer.step()"
)


class Slices(Listener):
    def splits(self, split: Method, data: Any, slices: int, axis: int) -> list[Any]:
        current = thread_context.current
        assert current is not None
        size = data.shape[axis]
        parts: list[Any] = split(data, max(1, min(slices, size)), axis, even_split=False)
        if size == len(current.part):
            current.slices = [part.shape[axis] for part in parts]
        return parts


def refuse_means(trainers: Sequence[Any], accumulated: Sequence[Any]) -> None:
    """Raise ValueError if a trainer with loss='mean' accumulates gradients on several devices."""
    adds_up = {id(param) for param in accumulated}
    for trainer in trainers:
        if trainer.loss_kind == "mean" and any(id(p) in adds_up and len(p.list_ctx()) > 1 for p in trainer._params):
            raise ValueError(MEANS_ADD_UP)
