"""What a script writes to its gradients and weights while it has a batch.

A script that changes gradients between `backward` and `step` changes those of its share: in one process that is where
one clips. Here the sum over the workers comes within `step`, so a clip before it is a clip of something else, and
nothing would look wrong. One that writes to weights (a clip of them, a decay of its own) would do so again when the
step is void; so what they were is kept until the step counts.

MXNet's arrays do not tell that they were written to; so the methods behind `array *= ...`, `array[...] = ...`, which
`set_data` goes through, and `copyto` look what the array is. An operator's `out=` is not seen.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip

from dyntrain.training.worker.loop.hand import Hand
from dyntrain.training.worker.loop.here import here

CHANGED = (
    "the gradients of {name} are changed before trainer.step(): they are those of this worker's share, and clipped or "
    "scaled by their own size they add up to another sum. Write trainer.allreduce_grads(), then what changes them, "
    "then trainer.update(n) in place of trainer.step(n)"
)
WRITES = ("__iadd__", "__isub__", "__imul__", "__itruediv__", "__idiv__", "__imod__", "__setitem__")
AMP = "mxnet.contrib.amp"  # its unscale divides gradients by what is the same on all workers


def _look(hand: Hand, array: Any, harmless: bool) -> None:
    """Before the array is written to. Raises ValueError."""
    for trainer in here.loop.trainers:
        own = not (harmless or trainer in hand.updated or hand.summed is trainer)
        for param in trainer._params:
            if own and any(gradient is array for gradient in param._grad or ()):
                raise ValueError(CHANGED.format(name=param.name))
            if any(weight is array for weight in param._data or ()):
                here.loop.overwrites(array)
                return


def _watched(write: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(write)
    def looks(self: Any, *args: Any) -> Any:
        if here.hand is not None:
            zero = isinstance(args[-1], int | float) and args[-1] == 0
            who = str(sys._getframe(1).f_globals.get("__name__"))
            if not who.startswith("dyntrain."):
                _look(here.hand, self, harmless=zero or who.startswith(AMP))
        return write(self, *args)

    return looks


def _copies(copyto: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(copyto)
    def looks(self: Any, other: Any) -> Any:
        if here.hand is not None and isinstance(other, mx.nd.NDArray):
            who = str(sys._getframe(1).f_globals.get("__name__"))
            if not who.startswith("dyntrain."):
                _look(here.hand, other, harmless=False)
        return copyto(self, other)

    return looks


for _kind in (mx.nd.NDArray, mx.np.ndarray):
    if "copyto" in vars(_kind):
        _kind.copyto = _copies(_kind.copyto)
    for _name in WRITES:
        if _name in vars(_kind):
            setattr(_kind, _name, _watched(vars(_kind)[_name]))
