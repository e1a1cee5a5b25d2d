"""Freeze dropout and normalization layers, so that a net treats each sample the same in any batch.

A frozen dropout layer drops nothing. A frozen normalization layer (a *norm*) uses the statistics of all probed samples
as constants. In an imported net, a frozen norm uses its running statistics. Only a process whose training is thrown
away may use this module, because layers stay frozen.
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
    """A layer's result for a sample depends on the other samples of the batch, and the layer cannot be frozen."""


class Statistics:
    """Means and variances for normalization layers (norms), in the order of the calls of these layers.

    `given`: the statistics that the norms use. If `given` is None, each norm uses the statistics of its own batch,
    which `seen` stores.
    """

    def __init__(self, given: Sequence[Moments] | None) -> None:
        self._given = None if given is None else iter(given)
        self.seen: list[Moments] = []

    def next_moments(self, data: Any, axis: int, like: Any) -> list[Any]:
        """Return mean and variance for the next called norm as arrays, with the dtype and shape of `like`.

        Raises CannotFreeze if no fitting statistics are given, because the net did not call this norm for the whole
        batch.
        """
        if self._given is None:
            data_numbers = data.asnumpy().astype(np.float64)
            averaged_axes = tuple(
                axis_number for axis_number in range(data_numbers.ndim) if axis_number != axis % data_numbers.ndim
            )
            self.seen.append([data_numbers.mean(averaged_axes).tolist(), data_numbers.var(averaged_axes).tolist()])
            moments: Moments | None = self.seen[-1]
        else:
            moments = next(self._given, None)
        if moments is None or any((len(values),) != like.shape for values in moments):
            raise CannotFreeze("the net calls a normalization layer that it did not call for the whole batch")
        make_array = mx.np.array if isinstance(data, mx.np.ndarray) else mx.nd.array
        return [make_array(values, dtype=like.dtype, ctx=data.ctx) for values in moments]


def freeze_layers(statistics: Statistics, refuses: bool = True) -> None:
    """Freeze the dropout and normalization layers of all nets in this process, permanently.

    Norms without an option for constant statistics cannot be frozen: with `refuses`, such a norm raises CannotFreeze
    when called, otherwise it stays unchanged.
    """
    with_constants, patches = functools.partial(_with_constants, statistics), Replaced()
    for module in (mx.nd, mx.nd.op, mx.nd.contrib, mx.nd.numpy_extension, mx.npx, mx.nd._internal):
        for function_names, replacement in (
            (NORMS, with_constants),
            (DROPOUTS, _without_dropout),
            (RNNS, _rnn_without_dropout),
            (OTHER_NORMS if refuses else (), _refusing_operator),
        ):
            for name in function_names:
                if hasattr(module, name):
                    patches.replace(module, name, replacement)
    patches.replace(gluon.HybridBlock, "_call_cached_op", lambda call: functools.partialmethod(_call_untraced, call))


def _call_untraced(block: Any, traced: Callable[..., Any], *args: Any) -> Any:
    """Call a hybridized block without its trace (its compiled graph), because the trace contains layers that are not
    frozen.

    An imported net can be called only by its trace, so the layers in its trace are frozen.
    """
    if isinstance(block, gluon.SymbolBlock):
        inputs, symbol = block._cached_graph
        if (frozen_symbol := _frozen_trace(symbol.tojson())) != symbol.tojson():
            block._clear_cached_op()
            block._cached_graph = inputs, mx.sym.load_json(frozen_symbol)
        return traced(block, *args)
    was_active, block._active = block._active, False
    try:
        return block.forward(*args)
    finally:
        block._active = was_active


def _frozen_trace(symbol: str) -> str:
    """Return a net's trace, as JSON, with frozen layers. Raises CannotFreeze if a layer cannot be frozen."""
    graph = json.loads(symbol)
    for node in graph["nodes"]:
        operator = re.sub("^_(contrib|npx)_", "", node["op"])
        if operator in OTHER_NORMS:
            raise CannotFreeze(f"layer {node['name']} cannot be frozen: it is a {operator}")
        if operator in NORMS:
            node["attrs"] = {**node.get("attrs", {}), "use_global_stats": "True"}
        elif operator in (*DROPOUTS, *RNNS) and "p" in node.get("attrs", {}):
            node["attrs"]["p"] = "0"
    return json.dumps(graph, indent=2)


def _with_constants(statistics: Statistics, operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def call_with_constants(*args: Any, **options: Any) -> Any:
        if autograd.is_training() and len(args) == NORM_ARGUMENTS and not options.get("use_global_stats"):
            args = (*args[:3], *statistics.next_moments(args[0], options.get("axis", 1), args[3]))
        return operator(*args, **{**options, "use_global_stats": True})

    return call_with_constants


def _without_dropout(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def return_unchanged(data: Any, *args: Any, **options: Any) -> Any:
        return data

    return return_unchanged


def _rnn_without_dropout(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def call_without_dropout(*args: Any, **options: Any) -> Any:
        return operator(*args, **{**options, "p": 0})

    return call_without_dropout


def _refusing_operator(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def raise_cannot_freeze(*args: Any, **options: Any) -> Any:
        raise CannotFreeze(operator.__name__)

    return raise_cannot_freeze
