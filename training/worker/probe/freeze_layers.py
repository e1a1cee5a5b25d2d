"""Nets whose layers treat each sample the same in any batch.

Nothing is dropped, and BatchNorm takes the statistics of the whole excerpt as constants; an imported net's takes its
running ones. For a child only, because it changes the whole process, permanently.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.worker.replaced import Replaced
from mxnet import autograd, gluon

NORMS = ("BatchNorm", "BatchNormWithReLU", "batch_norm")
DROPOUTS = ("Dropout", "dropout")
RNNS = ("RNN", "rnn")
ACROSS = ("SyncBatchNorm", "BatchNorm_v1")  # norms without an option for constant statistics
ARRAYS = 5  # arguments of a norm: data, gamma, beta, the running mean and variance
Moments = list[list[float]]  # a mean and a variance for each channel


class MovesOn(RuntimeError):
    """A layer that cannot be held still."""


class Statistics:
    """Statistics for norms in the order of their calls: of their own batch, stored in `seen`, or the `given` ones."""

    def __init__(self, given: Sequence[Moments] | None) -> None:
        self._given = None if given is None else iter(given)
        self.seen: list[Moments] = []

    def of(self, data: Any, axis: int, like: Any) -> list[Any]:
        """Mean and variance as arrays `like` the running ones. Raises MovesOn if the net has called other norms."""
        if self._given is None:
            numbers = data.asnumpy().astype(np.float64)
            others = tuple(i for i in range(numbers.ndim) if i != axis % numbers.ndim)
            self.seen.append([numbers.mean(others).tolist(), numbers.var(others).tolist()])
            moments: Moments | None = self.seen[-1]
        else:
            moments = next(self._given, None)
        if moments is None or any((len(each),) != like.shape for each in moments):
            raise MovesOn("a norm that the whole batch did not come to")
        make = mx.np.array if isinstance(data, mx.np.ndarray) else mx.nd.array
        return [make(each, dtype=like.dtype, ctx=data.ctx) for each in moments]


def freeze_layers(statistics: Statistics, refuses: bool = True) -> None:
    """Hold the layers of all nets still, for good.

    Norms without an option for that raise MovesOn when called; unless `refuses`, they stay as they are.
    """
    normed, replaced = functools.partial(_normed, statistics), Replaced()
    for module in (mx.nd, mx.nd.op, mx.nd.contrib, mx.nd.numpy_extension, mx.npx, mx.nd._internal):
        for names, holds in (
            (NORMS, normed),
            (DROPOUTS, _kept),
            (RNNS, _undropped),
            (ACROSS if refuses else (), _refused),
        ):
            for name in names:
                if hasattr(module, name):
                    replaced.replace(module, name, holds)
    replaced.replace(gluon.HybridBlock, "_call_cached_op", lambda traced: functools.partialmethod(_untraced, traced))


def _untraced(block: Any, traced: Callable[..., Any], *args: Any) -> Any:
    """Call a hybridized block without its trace, which has the layers as they were then.

    An imported net is nothing but its trace, so that is changed.
    """
    if isinstance(block, gluon.SymbolBlock):
        inputs, symbol = block._cached_graph
        if (held := _held(symbol.tojson())) != symbol.tojson():
            block._clear_cached_op()
            block._cached_graph = inputs, mx.sym.load_json(held)
        return traced(block, *args)
    active, block._active = block._active, False
    try:
        return block.forward(*args)
    finally:
        block._active = active


def _held(symbol: str) -> str:
    """The trace with its layers held still. Raises MovesOn if one cannot be."""
    graph = json.loads(symbol)
    for node in graph["nodes"]:
        operator = re.sub("^_(contrib|npx)_", "", node["op"])
        if operator in ACROSS:
            raise MovesOn(f"{node['name']} is a {operator}")
        if operator in NORMS:
            node["attrs"] = {**node.get("attrs", {}), "use_global_stats": "True"}
        elif operator in (*DROPOUTS, *RNNS) and "p" in node.get("attrs", {}):
            node["attrs"]["p"] = "0"
    return json.dumps(graph, indent=2)


def _normed(statistics: Statistics, operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def by_constants(*args: Any, **options: Any) -> Any:
        if autograd.is_training() and len(args) == ARRAYS and not options.get("use_global_stats"):
            args = (*args[:3], *statistics.of(args[0], options.get("axis", 1), args[3]))
        return operator(*args, **{**options, "use_global_stats": True})

    return by_constants


def _kept(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def nothing_dropped(data: Any, *args: Any, **options: Any) -> Any:
        return data

    return nothing_dropped


def _undropped(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def nothing_dropped(*args: Any, **options: Any) -> Any:
        return operator(*args, **{**options, "p": 0})

    return nothing_dropped


def _refused(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def moves_on(*args: Any, **options: Any) -> Any:
        raise MovesOn(operator.__name__)

    return moves_on
