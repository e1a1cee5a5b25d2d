"""What a script writes to its gradients, weights and optimizer states while it has a batch.

A script that changes gradients between `backward` and `step` changes those of its share: in one process that is where
one clips. Here the sum over the workers comes within `step`, so a clip before it is a clip of something else, and
nothing would look wrong. One that writes to weights (a clip of them, a decay of its own) would do so again when the
step is void; so what they were is kept until the step counts.

MXNet's arrays do not tell that they were written to; so the methods behind `array *= ...`, `array[...] = ...`, which
`set_data` goes through, and `copyto` look what the array is; and so do operators that are given an `out=`. A part of a
weight (`weight[:2] *= ...`) is another array over the same memory, so its weight counts as written to where the part is
taken.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.checks.findings import script_line
from dyntrain.training.worker.loop.batch.changes import factor_of, in_digits, remember, remember_masked
from dyntrain.training.worker.loop.batch.hand import Hand
from dyntrain.training.worker.loop.batch.here import caller, here, within
from dyntrain.training.worker.loop.watched.between import wrote_to
from dyntrain.training.worker.loop.watched.not_kept import tell_of_not_kept
from dyntrain.training.worker.loop.watched.origins import follows, put, since_of
from dyntrain.training.worker.loop.watched.outside import mark_gradients
from dyntrain.training.worker.loop.watched.row_steps import oldest
from dyntrain.training.worker.state.slots import leaves
from mxnet import gluon

WRITES = ("__iadd__", "__isub__", "__imul__", "__itruediv__", "__idiv__", "__imod__", "__setitem__")
AMP = "mxnet.contrib.amp"  # its unscale divides gradients by what is the same on all workers


def look(hand: Hand, array: Any, to_zero: bool, by_amp: bool = False) -> None:
    """Before the array is written to."""
    if hand.updates:
        return  # an optimizer's own lines
    holders = _holders(hand, array)
    updated = any(trainer in hand.updated for trainer, _ in holders)
    summed = any(hand.summed is trainer for trainer, _ in holders)
    if holders and (to_zero or updated):
        here.loop.adding_up.zeroed(param for _, param in holders)
        remember_masked(hand, array)
    elif holders and not (by_amp or summed):
        remember(hand, array, script_line())
    if not holders:
        if any(each is array for each in hand.arrays_read):
            here.loop.findings.find("DT304", shape=array.shape)
        tell_of_not_kept(hand, array)
        _tell_of_moved(hand, array)
        _keep(hand, array)


def _holders(hand: Hand, gradient: Any) -> list[tuple[Any, Any]]:
    """The trainers and parameters of which it is one."""
    trainers = here.loop.trainers
    if not hand.is_gradient(gradient, trainers):
        return []
    return [(t, p) for t in trainers for p in t._params if any(each is gradient for each in p._grad or ())]


def _tell_of_moved(hand: Hand, array: Any) -> None:
    """Of a weight whose gradient was read, and is not summed yet."""
    for param in _unsummed(hand) if hand.gradients_read else ():
        moved = id(param) in hand.gradients_read and any(data is array for data in param._data or ())
        if moved and any(data._fresh_grad for data in param._data):
            here.loop.findings.find("DT303", name=param.name)


def settle_changes(hand: Hand) -> None:
    """What adds up goes on to the next backward pass, or batch: what was done to it is looked at now. Anything else is
    written anew.
    """
    for trainer in here.loop.trainers if hand.raw else ():
        here.loop.changed_by |= factors_of_changes(hand, trainer, ("add",))
    hand.raw.clear()


def factors_of_changes(hand: Hand, trainer: Any, kinds: Sequence[str] = ("add", "write")) -> set[tuple[str, str]]:
    """Before its gradients are summed: by which numbers the script has multiplied them. A clip of a share is proven
    wrong; what is multiplied by other numbers on other workers is, by their votes; of anything else it is told.
    """
    found, loop = set[tuple[str, str]](), here.loop
    for param in trainer._params if hand.raw else ():
        for gradient in (param._grad or ()) if param.grad_req in kinds else ():
            if (raw := hand.raw.pop(id(gradient), None)) is None:
                continue
            by = factor_of(raw, gradient)
            digits = in_digits(by) if isinstance(by, float) else None
            if by == "clip":
                hand.refused |= loop.findings.find("DT301", raw.at, name=param.name) is not None
            elif by == "other" or (digits and loop.known_factors.setdefault(param, digits) != digits):
                loop.findings.find("DT302", raw.at, name=param.name)
            found |= {("gradient", digits)} if digits else set()
    return found


def _unsummed(hand: Hand) -> list[Any]:
    """The parameters of which no trainer has summed gradients since the batch is in hand."""
    done, found = set[int](), dict[int, Any]()
    for trainer in here.loop.trainers:
        for param in trainer._params:
            found[id(param)] = param
            if trainer in hand.updated or hand.summed is trainer:
                done.add(id(param))
    return [param for number, param in found.items() if number not in done]


def _keep(hand: Hand, array: Any) -> None:
    """What it is, if it is a weight or an optimizer's state."""
    if hand.kept_from is None:
        hand.kept_from = {id(each) for trainer in here.loop.trainers for each in _weights_and_states(trainer)}
    if id(array) not in hand.kept_from:
        return
    here.loop.undo.script_writes(array)
    if not here.in_block and (name := here.loop.state.script_sets(array)):
        here.loop.findings.find("DT305", name=name)


def _weights_and_states(trainer: Any) -> Iterator[Any]:
    for param in trainer._params:
        yield from param._data or ()
    for updater in trainer._updaters:
        for each in updater.states.values():
            yield from leaves(each)


def _watched(write: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(write)
    def looks(self: Any, *args: Any) -> Any:
        if here.hand is None:
            wrote_to(self)
            return write(self, *args)
        zero = isinstance(args[-1], int | float) and args[-1] == 0
        who = caller(1)
        is_the_scripts = not who.startswith("dyntrain.")
        if is_the_scripts:
            look(here.hand, self, zero, by_amp=who.startswith(AMP))
        with within("in_write"):
            result = write(self, *args)
        if is_the_scripts:
            here.loop.undo.script_wrote(self)
        return result

    return looks


def _copies(copyto: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(copyto)
    def looks(self: Any, other: Any) -> Any:
        if here.hand is None or not isinstance(other, mx.nd.NDArray):
            wrote_to(other)
            return copyto(self, other)
        is_the_scripts = not caller(1).startswith("dyntrain.")
        if is_the_scripts:
            look(here.hand, other, to_zero=False)
        with within("in_write"):
            result = copyto(self, other)
        if is_the_scripts:
            here.loop.undo.script_wrote(other)
        return result

    return looks


def _takes_a_part(getitem: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(getitem)
    def looks(self: Any, key: Any) -> Any:
        if (hand := here.hand) is not None and not hand.updates:
            _keep(hand, self)
            if hand.is_gradient(self, here.loop.trainers) and not caller(1).startswith("dyntrain."):
                remember(hand, self)  # a part of it is another array, over the same memory
        return getitem(self, key)

    return looks


def _read(param: Any) -> None:
    """By the script."""
    hand = here.hand
    if hand is None or hand.updates or hand.summed is not None:
        return
    if any(data._fresh_grad for data in param._data or ()):
        hand.gradients_read.add(id(param))


def _reads(read: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(read)
    def looks(self: Any, *args: Any, **said: Any) -> Any:
        if here.hand is not None and not caller(1).startswith(("dyntrain.", "mxnet.gluon.")):
            _read(self)
        mark_gradients(gradients := read(self, *args, **said))
        return gradients

    return looks


def _gradient(own: property) -> property:
    """MXNet makes another object of a weight's gradient each time that it is asked for (`weight.grad[:] *= ...`)."""

    def grad(self: Any) -> Any:
        for trainer in here.loop.trainers if here.hand is not None else ():
            for param in trainer._params:
                for weight, gradient in zip(param._data or (), param._grad or (), strict=False):
                    if weight is self:
                        _read(param)
                        return gradient
        gradient = own.fget(self)  # type: ignore[misc]  # it has one
        mark_gradients(gradient)
        hand = here.hand
        if hand is not None and gradient is not None and not any(each is self for each in hand.attached):
            hand.arrays_read.append(self)
        if hand is not None and gradient is not None and follows():
            put(
                gradient, min(here.loop.position.step, oldest(since_of(self))), into=False
            )  # of the samples, if not before
        return gradient

    return property(grad, doc=own.__doc__)


def _attaches(attach_grad: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(attach_grad)
    def looks(self: Any, *args: Any, **said: Any) -> Any:
        if here.hand is not None:
            here.hand.attached.append(self)  # of samples, as an adversarial example: written to, it is still its own
        return attach_grad(self, *args, **said)

    return looks


for _kind in (mx.nd.NDArray, mx.np.ndarray):
    if "attach_grad" in vars(_kind):
        _kind.attach_grad = _attaches(_kind.attach_grad)
    if "copyto" in vars(_kind):
        _kind.copyto = _copies(_kind.copyto)
    for _name in WRITES:
        if _name in vars(_kind):
            setattr(_kind, _name, _watched(vars(_kind)[_name]))
    if "__getitem__" in vars(_kind):
        _kind.__getitem__ = _takes_a_part(_kind.__getitem__)
    if "grad" in vars(_kind):
        _kind.grad = _gradient(vars(_kind)["grad"])
gluon.Parameter.grad, gluon.Parameter.list_grad = _reads(gluon.Parameter.grad), _reads(gluon.Parameter.list_grad)
