"""Several devices in one worker: `gluon.utils.split_and_load` and the means that scripts make on each device.

A script divides its batch evenly among its devices. A share of the batch seldom divides evenly, and may have fewer
samples than there are devices, both of which Gluon refuses. So while a batch is in hand its slices may be uneven, and
fewer than the devices: one without samples has no part in the step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet.gluon import utils  # isort: skip

from dyntrain.training.worker.loop.batch.here import here

MEANS_ADD_UP = (
    "loss='mean' where gradients add up (grad_req='add', accumulate=) on several devices, whose slices are not equally "
    "large: leave .mean() and loss='mean' out, and trainer.step() is told the batch size"
)


def _of_a_share(split: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(split)
    def split_data(data: Any, num_slice: int, batch_axis: int = 0, even_split: bool = True) -> Any:
        if here.hand is None:
            return split(data, num_slice, batch_axis, even_split)
        size = data.shape[batch_axis]
        slices = split(data, max(1, min(num_slice, size)), batch_axis, even_split=False)
        if size == len(here.hand.part):
            here.hand.slices = [part.shape[batch_axis] for part in slices]
        return slices

    return split_data


utils.split_data = _of_a_share(utils.split_data)


def refuse_means(trainers: Sequence[Any], accumulated: Sequence[Any]) -> None:
    """Raises ValueError."""
    adds_up = {id(param) for param in accumulated}
    for trainer in trainers:
        if trainer.loss_kind == "mean" and any(id(p) in adds_up and len(p.list_ctx()) > 1 for p in trainer._params):
            raise ValueError(MEANS_ADD_UP)
