"""What hybridized blocks are made of: in MXNet's record each call of one is a single operator, which does not show a
division within it. So where losses will be looked at, the symbols of the blocks that are called are kept, by the names
that the calls have in the record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.loop.watched.factors import name_of, remember
from dyntrain.training.worker.loop.watched.heads import looks
from dyntrain.training.worker.loop.watched.origins import arrays
from mxnet import autograd, gluon


def _kept(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def keeps(self: Any, *args: Any) -> Any:
        made = call(self, *args)
        if here.hand is not None:
            here.hand.operators += 1
        if looks() and autograd.is_recording() and (name := name_of(output := next(arrays(made)))):
            here.loop.factors.hybrids[name] = self._cached_graph[1]
            if here.loop.on_trial:
                assert here.hand is not None
                remember(here.hand, [*arrays(args)], output)
        return made

    return keeps


gluon.HybridBlock._call_cached_op = _kept(gluon.HybridBlock._call_cached_op)
