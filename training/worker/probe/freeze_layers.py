"""Freeze layers, so that a net treats each sample the same in any batch.

Dropout drops nothing. A *norm* (normalization layer) uses the statistics of the whole excerpt as constants; in an
imported net it uses its running statistics. Only a process that trains for a test may use this module, because the
change is permanent.
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
OTHER_NORMS = ("SyncBatchNorm", "BatchNorm_v1")  # norms without an option for constant statistics
NORM_ARGUMENTS = 5  # arguments of a norm: data, gamma, beta, the running mean and variance
Moments = list[list[float]]  # a mean and a variance for each channel


class CannotFreeze(RuntimeError):
    """A layer depends on the batch and cannot be frozen."""


class Statistics:
    """Statistics for norms, in the order of the norms' calls.

    `given`: the statistics to use. None: statistics of each norm's own batch, which are stored in `seen`.
    """

    def __init__(self, given: Sequence[Moments] | None) -> None:
        self._given = None if given is None else iter(given)
        self.seen: list[Moments] = []

    def of(self, data: Any, axis: int, like: Any) -> list[Any]:
        """Return mean and variance of a norm as arrays, with the dtype and shape of `like`.

        Raises CannotFreeze if the net has called other norms than for the whole batch.
        """
        if self._given is None:
            numbers = data.asnumpy().astype(np.float64)
            other_axes = tuple(i for i in range(numbers.ndim) if i != axis % numbers.ndim)
            self.seen.append([numbers.mean(other_axes).tolist(), numbers.var(other_axes).tolist()])
            moments: Moments | None = self.seen[-1]
        else:
            moments = next(self._given, None)
        if moments is None or any((len(each),) != like.shape for each in moments):
            raise CannotFreeze("the net calls a norm that it did not call for the whole batch")
        make = mx.np.array if isinstance(data, mx.np.ndarray) else mx.nd.array
        return [make(each, dtype=like.dtype, ctx=data.ctx) for each in moments]


def freeze_layers(statistics: Statistics, refuses: bool = True) -> None:
    """Freeze the layers of all nets in this process, permanently.

    Norms without an option for constant statistics raise CannotFreeze when called, or stay unchanged without `refuses`.
    """
    with_constants, replaced = functools.partial(_with_constants, statistics), Replaced()
    for module in (mx.nd, mx.nd.op, mx.nd.contrib, mx.nd.numpy_extension, mx.npx, mx.nd._internal):
        for names, replacement in (
            (NORMS, with_constants),
            (DROPOUTS, _without_dropout),
            (RNNS, _rnn_without_dropout),
            (OTHER_NORMS if refuses else (), _refusing),
        ):
            for name in names:
                if hasattr(module, name):
                    replaced.replace(module, name, replacement)
    replaced.replace(gluon.HybridBlock, "_call_cached_op", lambda traced: functools.partialmethod(_untraced, traced))


def _untraced(block: Any, traced: Callable[..., Any], *args: Any) -> Any:
    """Call a hybridized block without its trace, because the trace has layers that are not frozen.

    An imported net has only a trace, so its trace is changed.
    """
    if isinstance(block, gluon.SymbolBlock):
        inputs, symbol = block._cached_graph
        if (frozen := _frozen_trace(symbol.tojson())) != symbol.tojson():
            block._clear_cached_op()
            block._cached_graph = inputs, mx.sym.load_json(frozen)
        return traced(block, *args)
    active, block._active = block._active, False
    try:
        return block.forward(*args)
    finally:
        block._active = active


def _frozen_trace(symbol: str) -> str:
    """Return the trace with frozen layers. Raises CannotFreeze if a layer cannot be frozen."""
    graph = json.loads(symbol)
    for node in graph["nodes"]:
        operator = re.sub("^_(contrib|npx)_", "", node["op"])
        if operator in OTHER_NORMS:
            raise CannotFreeze(f"{node['name']} is a {operator}")
        if operator in NORMS:
            node["attrs"] = {**node.get("attrs", {}), "use_global_stats": "True"}
        elif operator in (*DROPOUTS, *RNNS) and "p" in node.get("attrs", {}):
            node["attrs"]["p"] = "0"
    return json.dumps(graph, indent=2)


def _with_constants(statistics: Statistics, operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def by_constants(*args: Any, **options: Any) -> Any:
        if autograd.is_training() and len(args) == NORM_ARGUMENTS and not options.get("use_global_stats"):
            args = (*args[:3], *statistics.of(args[0], options.get("axis", 1), args[3]))
        return operator(*args, **{**options, "use_global_stats": True})

    return by_constants


def _without_dropout(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def nothing_dropped(data: Any, *args: Any, **options: Any) -> Any:
        return data

    return nothing_dropped


def _rnn_without_dropout(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def nothing_dropped(*args: Any, **options: Any) -> Any:
        return operator(*args, **{**options, "p": 0})

    return nothing_dropped


def _refusing(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def refuse(*args: Any, **options: Any) -> Any:
        raise CannotFreeze(operator.__name__)

    return refuse
