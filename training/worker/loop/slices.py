"""Divide a worker's share of a batch among several devices, when the script calls `gluon.utils.split_and_load`.

Gluon refuses a batch that does not divide evenly among the devices, or that has fewer samples than there are devices. A
worker's share often has an uneven or small number of samples. So the devices' slices may be of unequal size, and there
may be fewer slices than devices. A device without samples takes no part in the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.worker.loop.batch.thread_context import thread_context
from dyntrain.training.worker.loop.instrument import Listener, Method

MEANS_ACCUMULATE_ERROR = (
    "loss='mean' where gradients add up (grad_req='add', accumulate=) on several devices, which have unequal slices: "
    "leave .mean() and loss='mean' out, and pass the batch size to trainer.step()"
)


class Slices(Listener):
    def splits(self, split: Method, data: Any, slices: int, axis: int) -> list[Any]:
        batch = thread_context.current
        assert batch is not None
        samples = data.shape[axis]
        device_slices: list[Any] = split(data, max(1, min(slices, samples)), axis, even_split=False)
        if samples == len(batch.part):
            batch.slices = [device_slice.shape[axis] for device_slice in device_slices]
        return device_slices


def refuse_means(trainers: Sequence[Any], accumulated: Sequence[Any]) -> None:
    """Raise ValueError if a trainer with loss='mean' accumulates gradients on several devices."""
    accumulated_ids = {id(param) for param in accumulated}
    for trainer in trainers:
        if trainer.loss_kind == "mean" and any(
            id(param) in accumulated_ids and len(param.list_ctx()) > 1 for param in trainer._params
        ):
            raise ValueError(MEANS_ACCUMULATE_ERROR)
