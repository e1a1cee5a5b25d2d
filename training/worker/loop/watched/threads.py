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


def _watched(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def looks(*args: Any, **said: Any) -> Any:
        made = backward(*args, **said)
        if here.hand is None and (loop := held_elsewhere()) is not None:
            reached = (p.name for t in loop.trainers for p in t._params for d in p._data or () if d._fresh_grad)
            if name := next(reached, None):
                loop.findings.find("DT117", name=name, thread=threading.current_thread().name)
        return made

    return looks


for _kind in (mx.nd.NDArray, mx.np.ndarray):
    if "backward" in vars(_kind):
        _kind.backward = _watched(_kind.backward)
autograd.backward = _watched(autograd.backward)
