"""What hybridized blocks are made of: in MXNet's record each call of one is a single operator, which does not show a
division within it. So where losses will be looked at, the symbols of the blocks that are called are kept, by the names
that the calls have in the record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.loop.watched.factors import name_of, remember
from dyntrain.training.worker.loop.watched.heads import looks
from mxnet import autograd, gluon


def _kept(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def keeps(self: Any, *args: Any) -> Any:
        made = call(self, *args)
        if looks() and autograd.is_recording() and (name := name_of(output := next(_arrays(made)))):
            here.loop.factors.hybrids[name] = self._cached_graph[1]
            if here.loop.on_trial:
                assert here.hand is not None
                remember(here.hand, [*_arrays(args)], output)
        return made

    return keeps


def _arrays(nested: Any) -> Iterator[Any]:
    """Of lists of lists, as blocks take and give them."""
    if isinstance(nested, mx.nd.NDArray):
        yield nested
    elif isinstance(nested, list | tuple):
        for each in nested:
            yield from _arrays(each)


gluon.HybridBlock._call_cached_op = _kept(gluon.HybridBlock._call_cached_op)
