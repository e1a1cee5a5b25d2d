"""What a script writes to its gradients, weights and optimizer states while it has a batch.

A script that changes gradients between `backward` and `step` changes those of its share: in one process that is where
one clips. Here the sum over the workers comes within `step`, so a clip before it is a clip of something else, and
nothing would look wrong. One that writes to weights (a clip of them, a decay of its own) would do so again when the
step is void; so what they were is kept until the step counts.

MXNet's arrays do not tell that they were written to; so the methods behind `array *= ...`, `array[...] = ...`, which
`set_data` goes through, and `copyto` look what the array is. An operator's `out=` is not seen. A part of a weight
(`weight[:2] *= ...`) is another array over the same memory, so its weight counts as written to where the part is taken.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip

from dyntrain.training.worker.loop.hand import Hand
from dyntrain.training.worker.loop.here import here
from dyntrain.training.worker.state.slots import leaves

CHANGED = (
    "the gradients of {name} are changed before trainer.step(): they are those of this worker's share, and clipped or "
    "scaled by their own size they add up to another sum. Write trainer.allreduce_grads(), then what changes them, "
    "then trainer.update(n) in place of trainer.step(n)"
)
WRITES = ("__iadd__", "__isub__", "__imul__", "__itruediv__", "__idiv__", "__imod__", "__setitem__")
AMP = "mxnet.contrib.amp"  # its unscale divides gradients by what is the same on all workers


def _look(hand: Hand, array: Any, harmless: bool) -> None:
    """Before the array is written to. Raises ValueError."""
    if hand.updates:
        return  # an optimizer's own lines
    trainers = here.loop.trainers
    holders = [(t, p) for t in trainers for p in t._params if any(gradient is array for gradient in p._grad or ())]
    if holders and not harmless and not any(t in hand.updated or hand.summed is t for t, _ in holders):
        raise ValueError(CHANGED.format(name=holders[0][1].name))
    if not holders:
        _keep(hand, array)


def _keep(hand: Hand, array: Any) -> None:
    """What it is, if it is a weight or an optimizer's state."""
    if hand.kept_from is None:
        hand.kept_from = {id(each) for trainer in here.loop.trainers for each in _weights_and_states(trainer)}
    if id(array) in hand.kept_from:
        here.loop.overwrites(array)


def _weights_and_states(trainer: Any) -> Iterator[Any]:
    for param in trainer._params:
        yield from param._data or ()
    for updater in trainer._updaters:
        for each in updater.states.values():
            yield from leaves(each)


def _watched(write: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(write)
    def looks(self: Any, *args: Any) -> Any:
        if here.hand is not None:
            zero = isinstance(args[-1], int | float) and args[-1] == 0
            who = str(sys._getframe(1).f_globals.get("__name__"))
            if not who.startswith("dyntrain."):
                _look(here.hand, self, harmless=zero or who.startswith(AMP))
                result = write(self, *args)
                here.loop.overwritten(self)
                return result
        return write(self, *args)

    return looks


def _copies(copyto: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(copyto)
    def looks(self: Any, other: Any) -> Any:
        if here.hand is not None and isinstance(other, mx.nd.NDArray):
            who = str(sys._getframe(1).f_globals.get("__name__"))
            if not who.startswith("dyntrain."):
                _look(here.hand, other, harmless=False)
                result = copyto(self, other)
                here.loop.overwritten(other)
                return result
        return copyto(self, other)

    return looks


def _takes_a_part(getitem: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(getitem)
    def looks(self: Any, key: Any) -> Any:
        if here.hand is not None and not here.hand.updates:
            _keep(here.hand, self)
        return getitem(self, key)

    return looks


def _gradient(own: property) -> property:
    """MXNet makes another object of a weight's gradient each time that it is asked for (`weight.grad[:] *= ...`)."""

    def grad(self: Any) -> Any:
        for trainer in here.loop.trainers if here.hand is not None else ():
            for param in trainer._params:
                for weight, gradient in zip(param._data or (), param._grad or (), strict=False):
                    if weight is self:
                        return gradient
        return own.fget(self)  # type: ignore[misc]  # it has one

    return property(grad, doc=own.__doc__)


for _kind in (mx.nd.NDArray, mx.np.ndarray):
    if "copyto" in vars(_kind):
        _kind.copyto = _copies(_kind.copyto)
    for _name in WRITES:
        if _name in vars(_kind):
            setattr(_kind, _name, _watched(vars(_kind)[_name]))
    if "__getitem__" in vars(_kind):
        _kind.__getitem__ = _takes_a_part(_kind.__getitem__)
    if "grad" in vars(_kind):
        _kind.grad = _gradient(vars(_kind)["grad"])
