"""Nets whose layers do to each sample what they do to it in any batch: no numbers are drawn, and BatchNorm takes its
running statistics. In a child alone: it is for the whole process, and for ever.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import json
import pickle
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from mxnet import gluon

NORMS = ("BatchNorm", "BatchNormWithReLU", "batch_norm")
DROPOUTS = ("Dropout", "dropout")
RNNS = ("RNN", "rnn")
ACROSS = ("SyncBatchNorm", "BatchNorm_v1")  # without a switch
DRAWN = 4096  # numbers that show whether others were drawn before
OWN = (random.Random, np.random.Generator, np.random.RandomState)


class MovesOn(RuntimeError):
    """A layer that cannot be held still."""


def hold_still() -> None:
    for module in (mx.nd, mx.nd.op, mx.nd.contrib, mx.nd.numpy_extension, mx.npx, mx.nd._internal):
        for names, holds in ((NORMS, _normed), (DROPOUTS, _kept), (RNNS, _undropped), (ACROSS, _refused)):
            for name in names:
                if hasattr(module, name):
                    setattr(module, name, holds(getattr(module, name)))
    traced = gluon.HybridBlock._call_cached_op
    gluon.HybridBlock._call_cached_op = functools.partialmethod(_untraced, traced)


def _untraced(block: Any, traced: Callable[..., Any], *args: Any) -> Any:
    """What was traced has its layers as they were then. An imported net is nothing but its trace."""
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
    """A trace, held still."""
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


def _normed(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def by_running_statistics(*args: Any, **said: Any) -> Any:
        return operator(*args, **{**said, "use_global_stats": True})

    return by_running_statistics


def _kept(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def nothing_dropped(data: Any, *args: Any, **said: Any) -> Any:
        return data

    return nothing_dropped


def _undropped(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def nothing_dropped(*args: Any, **said: Any) -> Any:
        return operator(*args, **{**said, "p": 0})

    return nothing_dropped


def _refused(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def moves_on(*args: Any, **said: Any) -> Any:
        raise MovesOn(operator.__name__)

    return moves_on


def generators() -> list[Any]:
    """Those that a script has made for itself."""
    return [each for each in gc.get_objects() if issubclass(type(each), OWN)]


class Draws:
    """What is drawn from now on, when the global generators have been seeded alike; `own`: those that are not."""

    def __init__(self, own: Sequence[Any]) -> None:
        self._own = [(each, _state(each)) for each in own]

    def digest(self) -> str:
        """Differs where other numbers were drawn, also by generators of the script's own. MXNet has two that cannot be
        read: most of its operators draw from one for each of many parts of an array, those like `shuffle` from a single
        one.
        """
        several, single = mx.nd.random.uniform(shape=DRAWN), mx.nd.shuffle(mx.nd.arange(DRAWN))
        moved = sorted(after for each, before in self._own if (after := _state(each)) != before)
        states = [several.asnumpy().tobytes(), single.asnumpy().tobytes(), *moved]
        return hashlib.sha256(b"".join(states)).hexdigest()


def _state(generator: Any) -> bytes:
    if isinstance(generator, np.random.Generator):
        return pickle.dumps(generator.bit_generator.state)
    try:
        return pickle.dumps(generator.getstate() if isinstance(generator, random.Random) else generator.get_state())
    except NotImplementedError:  # the system's, which has none
        return b""
