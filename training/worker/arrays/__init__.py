"""What rooms that import no MXNet ask of its arrays. Another framework's would take MXNet's place here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip


def is_array(value: object) -> bool:
    return isinstance(value, mx.nd.NDArray)


def doubles(numbers: Iterable[float]) -> Any:
    """An array of them, as the engine sums them up."""
    return mx.nd.array(numbers, dtype="float64")


def numbers_of(array: Any) -> Any:
    """As NumPy has them; waits for all that is computed for it."""
    return array.asnumpy() if is_array(array) else np.asarray(array)


def number(value: Any) -> float:
    """Also of an array that holds one, as what is counted in a batch. Raises ValueError for one of more."""
    return float(value.asnumpy().item() if is_array(value) else value)


def zeros(shape: Sequence[int], dtype: Any, like: Any = None) -> Any:
    """On the device of `like`; None: on the processor."""
    return mx.nd.zeros(tuple(shape), ctx=None if like is None else like.context, dtype=dtype)


def on_host(array: Any) -> Any:
    """A copy in the host's memory."""
    return array.copyto(mx.cpu())


def rows_of(array: Any, axis: int, first: int, end: int) -> Any:
    """A copy of these along the axis."""
    cut = mx.nd.slice_axis(array.as_nd_ndarray(), axis, first, end)
    return cut.as_np_ndarray() if isinstance(array, mx.np.ndarray) else cut


def wait_for_all() -> None:
    """That this process computes."""
    mx.nd.waitall()
