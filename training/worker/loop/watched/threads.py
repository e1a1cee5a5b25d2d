"""A thread of the script's own that differentiates a part of the batch, as those of GluonNLP's `Parallel` do for each
device: a batch is in hand on the thread that goes through the loop, and nothing of what others do with it is looked at.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.loop.batch.here import held_elsewhere, here
from mxnet import autograd

IN_A_THREAD = (
    "backward() reaches {name} in a thread of the script's own ({thread}), where nobody sees whether the loss is what "
    "job.trainer(...) was told: differentiate the devices' losses one after another, on the thread that goes through "
    "the batches. MXNet computes them at the same time all the same. GluonNLP's Parallel: num_workers=0"
)


def _watched(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def looks(*args: Any, **said: Any) -> Any:
        made = backward(*args, **said)
        if here.hand is None and (loop := held_elsewhere()) is not None:
            reached = (p.name for t in loop.trainers for p in t._params for d in p._data or () if d._fresh_grad)
            if name := next(reached, None):  # raised here, it would end the thread, and the script might wait for it
                loop.refusal = loop.refusal or IN_A_THREAD.format(name=name, thread=threading.current_thread().name)
        return made

    return looks


for _kind in (mx.nd.NDArray, mx.np.ndarray):
    if "backward" in vars(_kind):
        _kind.backward = _watched(_kind.backward)
autograd.backward = _watched(autograd.backward)
