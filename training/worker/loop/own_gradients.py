"""A script that changes gradients between `backward` and `step` changes those of its share.

In one process that is where one clips. Here the sum over the workers comes within `step`, so a clip before it is a clip
of something else, and nothing would look wrong. MXNet's arrays do not tell that they were written to; so the methods
behind `array *= ...` and `array[...] = ...` look whether it is such a gradient. An operator's `out=` is not seen.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip

from dyntrain.training.worker.loop.hand import Hand

CHANGED = (
    "the gradients of {name} are changed before trainer.step(): they are those of this worker's share, and clipped or "
    "scaled by their own size they add up to another sum. Write trainer.allreduce_grads(), then what changes them, "
    "then trainer.update(n) in place of trainer.step(n)"
)
WRITES = ("__iadd__", "__isub__", "__imul__", "__itruediv__", "__idiv__", "__imod__", "__setitem__")
TRUSTED = ("dyntrain.", "mxnet.contrib.amp")  # amp.unscale divides by what is the same on all workers


class _Here(threading.local):
    hand: Hand | None = None
    trainers: Sequence[Any] = ()


_here = _Here()


def watch(hand: Hand | None, trainers: Sequence[Any] = ()) -> None:
    """From now on, on this thread, what is written to gradients of a trainer that has not summed them raises
    ValueError. None: nothing.
    """
    _here.hand, _here.trainers = hand, trainers


def _is_own(array: Any) -> str | None:
    """The name of the parameter whose gradient it is."""
    hand = _here.hand
    assert hand is not None
    for trainer in _here.trainers:
        if trainer in hand.updated or hand.summed is trainer:
            continue
        for param in trainer._params:
            if any(gradient is array for gradient in param._grad or ()):
                return str(param.name)
    return None


def _watched(write: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(write)
    def looks(self: Any, *args: Any) -> Any:
        if _here.hand is not None:
            zero = isinstance(args[-1], int | float) and args[-1] == 0
            who = str(sys._getframe(1).f_globals.get("__name__"))
            if not zero and not who.startswith(TRUSTED) and (name := _is_own(self)) is not None:
                raise ValueError(CHANGED.format(name=name))
        return write(self, *args)

    return looks


for _kind in (mx.nd.NDArray, mx.np.ndarray):
    for _name in WRITES:
        if _name in vars(_kind):
            setattr(_kind, _name, _watched(vars(_kind)[_name]))
