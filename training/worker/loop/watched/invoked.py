"""Operators of MXNet as a script calls them: what one writes to is looked at, what it makes is followed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet.ndarray import register  # isort: skip
from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.loop.watched.origins import arrays, draws, follow, follows, handle_of
from dyntrain.training.worker.loop.watched.own_gradients import look

_zeros = {handle_of(name) for name in ("_zeros", "zeros_like")}


def _watched(invoke: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(invoke)
    def looks(handle: int, inputs: Sequence[Any], keys: Any, values: Any, out: Any, *more: Any) -> Any:
        if here.hand is None and draws(handle) and out is None and not here.in_block and hasattr(here, "loop"):
            here.loop.draws.drawn()  # what weights begin with has an `out`
        if not follows():
            return invoke(handle, inputs, keys, values, out, *more)
        written = list[Any]()
        if here.hand is not None:
            here.hand.operators += 1
            for array in arrays(out) if not here.in_write else ():
                look(here.hand, array, to_zero=handle in _zeros)
                written.append(array)
        made = invoke(handle, inputs, keys, values, out, *more)
        for array in written:
            here.loop.undo.script_wrote(array)
        follow(handle, inputs, made, into=out is not None)
        return made

    return looks


register._imperative_invoke = _watched(register._imperative_invoke)
