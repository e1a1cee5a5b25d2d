"""Datasets that hold what was made of trained weights outside of batches, as pseudo-labels beside their samples: what
is loaded of them is a batch of this step, and does not show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.loop.watched.outside import made_at, tell
from mxnet import gluon

LOOKED_AT = 64  # of a list's elements, which are alike
DEEP = 5  # a transformed dataset of a dataset of a list of samples


def tell_of_made(dataset: Any) -> None:
    """An epoch of it begins."""
    if here.loop.outside.known.made and (then := made_at([*_held(dataset, DEEP)])) is not None:
        tell(then)


def _held(held: Any, deep: int) -> Iterator[Any]:
    if isinstance(held, mx.nd.NDArray):
        yield held
    elif deep and not isinstance(held, gluon.Block | type):
        parts = held if isinstance(held, list | tuple | dict) else getattr(held, "__dict__", {})
        several = list(parts.values()) if isinstance(parts, dict) else parts
        for each in several[:: -(-len(several) // LOOKED_AT) or 1]:
            yield from _held(each, deep - 1)
