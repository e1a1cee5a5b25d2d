"""Functions on MXNet's arrays, for packages of dyntrain that do not import MXNet themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip


def is_array(value: object) -> bool:
    return isinstance(value, mx.nd.NDArray)


def float64_array(numbers: Iterable[float]) -> Any:
    """Return the numbers as a float64 array of MXNet, which a communication engine can sum over workers."""
    return mx.nd.array(numbers, dtype="float64")


def numbers_of(array: Any) -> Any:
    """Wait until the array is computed, and return its values as a NumPy array."""
    return array.asnumpy() if is_array(array) else np.asarray(array)


def number(value: Any) -> float:
    """Return a number or an array of one element as a float. Raises ValueError for an array of several elements."""
    return float(value.asnumpy().item() if is_array(value) else value)


def zeros(shape: Sequence[int], dtype: Any, like: Any = None) -> Any:
    """Return an array of zeros on the device of the array `like`, or on the CPU if `like` is None."""
    return mx.nd.zeros(tuple(shape), ctx=None if like is None else like.context, dtype=dtype)


def copy_to_host(array: Any) -> Any:
    """Return a copy of the array in the CPU's memory."""
    return array.copyto(mx.cpu())


def rows_of(array: Any, axis: int, first_row: int, end_row: int) -> Any:
    """Return a copy of the array's rows from `first_row` to `end_row - 1` along `axis`."""
    row_slice = mx.nd.slice_axis(array.as_nd_ndarray(), axis, first_row, end_row)
    return row_slice.as_np_ndarray() if isinstance(array, mx.np.ndarray) else row_slice


def wait_for_all() -> None:
    """Wait until MXNet has executed all array operations of this process."""
    mx.nd.waitall()
