"""Replace attributes of MXNet in a worker during a loop over epochs, so that listeners get the script's calls of MXNet.

A job's worker replaces attributes of MXNet only in this module. A loop's listeners are called on the thread that runs
the loop. An attribute is replaced only if a listener wants the attribute's calls. After the last loop of a process,
MXNet has its original attributes again.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from types import FrameType
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.loop.batch.thread_context import thread_context, within
from dyntrain.training.worker.loop.record.operators import handle_of
from dyntrain.training.worker.replaced import Attribute, Replaced
from mxnet import autograd, gluon
from mxnet.gluon import utils
from mxnet.ndarray import register

ARRAY_TYPES = (mx.nd.NDArray, mx.np.ndarray)
AMP = "mxnet.contrib.amp"  # AMP divides gradients by a loss scale that is equal on all workers
ZERO_OPERATORS = {handle_of(name) for name in ("_zeros", "zeros_like")}
Method = Callable[..., Any]  # a method of MXNet, or its replacement


class Listener:
    """Base class of listeners; a listener overrides the methods for those calls of MXNet that the listener wants.

    Unless a method's docstring says otherwise, the method is called only while the script has a batch. The job's own
    sums and updates do not call listeners.
    """

    def calls_block(self, block: Any) -> None:
        """Called before the script calls a block, but not for calls that a block makes."""

    def called_hybrid(self, block: Any, inputs: Sequence[Any], output: Any) -> None:
        """Called after a recorded call of a hybridized block, which is one operator in MXNet's record."""

    def called_operator(self, operator: int, inputs: Sequence[Any], outputs: Any) -> None:
        """Called after an operator, given by its handle, has made new arrays while MXNet records the computation."""

    def differentiates(self, heads: Sequence[Any], gradients: Sequence[Any]) -> AbstractContextManager[None]:
        """Return the context in which a backward pass runs; called before the backward pass."""
        raise NotImplementedError

    def writes(self, array: Any, writer: str, to_zero: bool) -> None:
        """Called before the module `writer` writes to `array` or to a part of `array`.

        `to_zero`: whether only zeros are written.
        """

    def wrote(self, array: Any) -> None: ...

    def takes_slice(self, array: Any) -> None:
        """Called before the script reads `array[key]`, which makes another array over the same memory."""

    def gradient_of(self, weight: Any) -> Any:
        """Return the gradient array of `weight`, or None if unknown. Replaces `weight.grad`, because MXNet makes a new
        object at each access, by which the gradient cannot be recognized.

        Only one listener may define `gradient_of`.
        """

    def writes_outside_batches(self, array: Any) -> None:
        """Called before the script writes to an array outside of its loop over the batches and outside of any block's
        call.
        """

    def splits(self, split: Method, data: Any, slices: int, axis: int) -> list[Any]:  # type: ignore[empty-body]
        """Called in place of `gluon.utils.split_data`, which is passed as `split`. Only one listener may define
        `splits`.
        """

    def calls_trainer(self, trainer: Any) -> None:
        """Called before `step`, `allreduce_grads` or `update` of any Gluon trainer."""


class Listeners:
    """Listeners of one loop, grouped by the methods that they override."""

    def __init__(self, *listeners: Listener) -> None:
        def overrides_of(name: str) -> tuple[Method, ...]:
            overriding_listeners = (
                listener for listener in listeners if getattr(type(listener), name) is not getattr(Listener, name)
            )
            return tuple(getattr(listener, name) for listener in overriding_listeners)

        def single_override(name: str) -> Method | None:
            """Return the method `name` of the only listener that overrides it, or None if no listener overrides it.

            Raises ValueError if several listeners override the method, because only one of them can return the result.
            """
            override, *more_overrides = overrides_of(name) or (None,)
            if more_overrides:
                raise ValueError(f"several listeners have the method {name}(), but only one of them can answer")
            return override

        self.calls_block = overrides_of("calls_block")
        self.called_hybrid = overrides_of("called_hybrid")
        self.called_operator = overrides_of("called_operator")
        self.differentiates = overrides_of("differentiates")
        self.writes, self.wrote = overrides_of("writes"), overrides_of("wrote")
        self.takes_slice, self.gradient_of = overrides_of("takes_slice"), single_override("gradient_of")
        self.writes_outside_batches = overrides_of("writes_outside_batches")
        self.splits, self.calls_trainer = single_override("splits"), overrides_of("calls_trainer")

    @property
    def replaced_attributes(self) -> Iterator[Attribute]:
        """The attributes of MXNet to replace, each with its replacement, for the calls that the listeners want."""
        yield gluon.Block, "__call__", _block_call
        yield register, "_imperative_invoke", _invoke
        for owner in ARRAY_TYPES:
            yield owner, "__setitem__", _set_item
            if self.takes_slice:
                yield owner, "__getitem__", _get_item
            if self.gradient_of and "grad" in vars(owner):
                yield owner, "grad", _grad
            if self.differentiates and "backward" in vars(owner):
                yield owner, "backward", _backward
        if self.differentiates:
            yield autograd, "backward", _backward_of_several
        if self.called_hybrid:
            yield gluon.HybridBlock, "_call_cached_op", _call_cached_op
        if self.splits:
            yield utils, "split_data", _split_data
        for name in ("step", "allreduce_grads", "update") if self.calls_trainer else ():
            yield gluon.Trainer, name, _trainer_call


class Instrument:
    """The replaced attributes of MXNet in this process, which several loops on different threads may share."""

    def __init__(self) -> None:
        self._lock, self._users, self._replaced = threading.Lock(), Counter[Attribute](), Replaced()

    def install(self, listeners: Listeners) -> None:
        thread_context.listeners = listeners
        with self._lock:
            for attribute in listeners.replaced_attributes:
                self._users[attribute] += 1
                if self._users[attribute] == 1:
                    self._replaced.replace(*attribute)

    def remove(self, listeners: Listeners) -> None:
        """Restore those replaced attributes of MXNet that no other loop uses.

        May be called from any thread, because Python's garbage collector may close a loop's generator in any thread.
        """
        if thread_context.listeners is listeners:
            thread_context.listeners = None
        with self._lock:
            for attribute in listeners.replaced_attributes:
                self._users[attribute] -= 1
                if not self._users[attribute]:
                    self._replaced.put_back(*attribute[:2])


instrument = Instrument()


def arrays_in(nested: Any) -> Iterator[Any]:
    """Yield the arrays in nested inputs or outputs of blocks and operators."""
    if isinstance(nested, mx.nd.NDArray):
        yield nested
    elif isinstance(nested, list | tuple | dict):
        for item in nested.values() if isinstance(nested, dict) else nested:
            yield from arrays_in(item)


def _batch_listeners() -> Listeners | None:
    """Return the listeners of this thread's loop, or None if this thread has no current batch or the job itself calls
    MXNet.
    """
    return None if thread_context.current is None or thread_context.in_job else thread_context.listeners


def _writing_module() -> str | None:
    """Return the name of the module that writes to an array: the module of the innermost frame outside of MXNet.

    Returns None if no listener is to be called, because the job itself writes or no loop over epochs runs.
    """
    if thread_context.listeners is None or thread_context.in_job or thread_context.in_write:
        return None
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module_name = str(frame.f_globals.get("__name__"))
        if not module_name.startswith("mxnet.") or module_name.startswith(AMP):
            return None if module_name.startswith("dyntrain.") else module_name
        frame = frame.f_back
    return None


def _write(target: Any, writer: str, to_zero: bool, write: Callable[[], Any]) -> Any:
    """Call `write` to write to `target`, and call the listeners before and after the write."""
    listeners, written_arrays = thread_context.listeners, list(arrays_in(target))
    assert listeners is not None
    if thread_context.current is None:
        for array in () if thread_context.in_block else written_arrays:
            for notify in listeners.writes_outside_batches:
                notify(array)
        return write()
    for array in written_arrays:
        for notify in listeners.writes:
            notify(array, writer, to_zero)
    with within("in_write"):
        result = write()
    for array in written_arrays:
        for notify in listeners.wrote:
            notify(array)
    return result


# ---- the replacements


def _block_call(call: Method) -> Method:
    @wraps(call)
    def call_and_notify(self: Any, *args: Any, **options: Any) -> Any:
        if not thread_context.in_block and (listeners := _batch_listeners()):
            for notify in listeners.calls_block:
                notify(self)
        thread_context.in_block += 1  # not by within(), which is slower: scripts call many blocks
        try:
            return call(self, *args, **options)
        finally:
            thread_context.in_block -= 1

    return call_and_notify


def _invoke(invoke: Method) -> Method:
    """Return a replacement for the call of operators outside of hybridized blocks, such as `+` in `array += other`."""

    @wraps(invoke)
    def invoke_and_notify(handle: int, inputs: Sequence[Any], keys: Any, values: Any, out: Any, *more: Any) -> Any:
        if out is not None and (writer := _writing_module()):
            return _write(
                out, writer, handle in ZERO_OPERATORS, lambda: invoke(handle, inputs, keys, values, out, *more)
            )
        output = invoke(handle, inputs, keys, values, out, *more)
        if out is None and (listeners := _batch_listeners()) and listeners.called_operator and autograd.is_recording():
            for notify in listeners.called_operator:
                notify(handle, inputs, output)
        return output

    return invoke_and_notify


def _set_item(set_item: Method) -> Method:
    @wraps(set_item)
    def set_and_notify(self: Any, key: Any, value: Any) -> Any:
        if writer := _writing_module():
            to_zero = isinstance(value, int | float) and value == 0
            return _write(self, writer, to_zero, lambda: set_item(self, key, value))
        return set_item(self, key, value)

    return set_and_notify


def _get_item(get_item: Method) -> Method:
    @wraps(get_item)
    def get_and_notify(self: Any, key: Any) -> Any:
        if listeners := _batch_listeners():
            for notify in listeners.takes_slice:
                notify(self)
        return get_item(self, key)

    return get_and_notify


def _grad(original_property: property) -> property:
    def gradient_of_listener(self: Any) -> Any:
        gradient = listeners.gradient_of(self) if (listeners := _batch_listeners()) and listeners.gradient_of else None
        return original_property.fget(self) if gradient is None else gradient  # type: ignore[misc]  # it has one

    return property(gradient_of_listener, doc=original_property.__doc__)


def _differentiation_contexts(heads: Sequence[Any], gradients: Sequence[Any]) -> ExitStack:
    contexts = ExitStack()
    if listeners := _batch_listeners():
        for notify in listeners.differentiates:
            contexts.enter_context(notify(heads, gradients))
    return contexts


def _backward(backward: Method) -> Method:
    @wraps(backward)
    def backward_of_array(self: Any, out_grad: Any = None, *args: Any, **options: Any) -> Any:
        with _differentiation_contexts([self], [out_grad]):
            return backward(self, out_grad, *args, **options)

    return backward_of_array


def _backward_of_several(backward: Method) -> Method:
    @wraps(backward)
    def backward_of_heads(heads: Any, head_grads: Any = None, *args: Any, **options: Any) -> Any:
        head_list = heads if isinstance(heads, list | tuple) else [heads]
        gradients = head_grads if isinstance(head_grads, list | tuple) else [head_grads] * len(head_list)
        with _differentiation_contexts(head_list, gradients):
            return backward(heads, head_grads, *args, **options)

    return backward_of_heads


def _call_cached_op(call: Method) -> Method:
    @wraps(call)
    def call_and_notify(self: Any, *args: Any) -> Any:
        output = call(self, *args)
        if (listeners := _batch_listeners()) and autograd.is_recording():
            for notify in listeners.called_hybrid:
                notify(self, [*arrays_in(args)], next(arrays_in(output)))
        return output

    return call_and_notify


def _split_data(split: Method) -> Method:
    @wraps(split)
    def split_or_notify(data: Any, num_slice: int, batch_axis: int = 0, even_split: bool = True) -> Any:
        if (listeners := _batch_listeners()) and listeners.splits:
            return listeners.splits(split, data, num_slice, batch_axis)
        return split(data, num_slice, batch_axis, even_split)

    return split_or_notify


def _trainer_call(call: Method) -> Method:
    @wraps(call)
    def call_and_notify(self: Any, *args: Any, **options: Any) -> Any:
        if listeners := _batch_listeners():
            for notify in listeners.calls_trainer:
                notify(self)
        return call(self, *args, **options)

    return call_and_notify
