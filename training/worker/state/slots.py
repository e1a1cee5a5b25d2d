"""Reads and writes the arrays of a training state in place, as raw bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
from mxnet.base import _LIB, check_call

import mxnet as mx  # isort: skip

from dyntrain.training.sampling.statistics import Doubles

RawBytes = np.ndarray[Any, np.dtype[np.uint8]]
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Slot:
    """One array of the training state. `label` names the array in messages. `name` is the same on all workers."""

    name: str  # the same on all workers
    label: str  # name for messages
    shape: tuple[int, ...]
    dtype: str  # type of the array's elements
    copies: tuple[Any, ...]  # the same value on each context

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    def read(self, raw: RawBytes) -> None:
        array = self.copies[0]
        wait_until_idle(array)
        check_call(
            _LIB.MXNDArraySyncCopyToCPU(array.handle, raw.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.size))
        )

    def write(self, raw: RawBytes) -> None:
        for context_copy in self.copies:
            write(context_copy, raw)

    def doubles(self) -> Doubles:
        raw_bytes = np.empty(self.nbytes, np.uint8)
        self.read(raw_bytes)
        return raw_bytes.view(self.dtype).astype(np.float64).reshape(-1)

    @property
    def record(self) -> list[Any]:
        """The array's entry in the header of a packed state."""
        return [self.name, list(self.shape), self.dtype]


def slot(name: str, label: str, copies: list[Any]) -> Slot:
    return Slot(name, label, tuple(copies[0].shape), np.dtype(copies[0].dtype).name, tuple(copies))


def write(array: Any, raw: RawBytes) -> None:
    wait_until_idle(array)
    try:
        _fill(array, raw)
    except mx.MXNetError:
        restore_plain_layout(array)
        _fill(array, raw)


def _fill(array: Any, raw: RawBytes) -> None:
    check_call(
        _LIB.MXNDArraySyncCopyFromCPU(array.handle, raw.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.size))
    )


def overwrite(array: Any, source: Any) -> None:
    """Copy `source` into `array`, after all pending work on `array` is done."""
    restore_plain_layout(array)
    source.copyto(array)


def wait_until_idle(array: Any) -> None:
    """Wait for MXNet's pending operations that read the array, and then for those that write to the array.

    MXNet regards a forward pass as a reader of a convolution's weights, but the pass may rewrite the weights in another
    layout. MXNet's engine learns of the rewriting only when the pass reaches the layer. Without waiting for readers,
    the weights' bytes may be moved while they are read, which gives wrong numbers or crashes the process.
    """
    check_call(_LIB.MXNDArrayWaitToWrite(array.handle))
    array.wait_to_read()


def restore_plain_layout(array: Any) -> int | None:
    """Restore the plain memory layout of an array, and return the array's address.

    A forward pass outside of training leaves a convolution's weights in a oneDNN layout. MXNet cannot copy outside data
    into an array with a oneDNN layout, and MXNet cannot copy even its own arrays into such an array with three or five
    dimensions. The call that returns the array's address also restores the plain layout (MXNDArrayGetData in MXNet's
    src/c_api/c_api.cc).
    """
    wait_until_idle(array)
    address = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(address)))
    return address.value


def byte_view(array: Any) -> RawBytes | None:
    """Return a view of the array's bytes, with a row for each number, or None if the array is not in the CPU's memory.

    The view is valid while no work on the array is pending.
    """
    if not array.context.device_type.startswith("cpu"):
        return None
    number_size = np.dtype(array.dtype).itemsize
    address = restore_plain_layout(array) if array.size else None
    if address is None:
        return np.zeros((0, number_size), np.uint8)
    return np.frombuffer((ctypes.c_uint8 * (array.size * number_size)).from_address(address), np.uint8).reshape(
        -1, number_size
    )


def same(array: Any, copy: Any) -> bool:
    """Whether two arrays are equal bit by bit. `copy` must be in the CPU's memory.

    If `array` is in the CPU's memory, it is compared without a copy.
    """
    present_bytes, saved_bytes = byte_view(array), byte_view(copy)
    if present_bytes is None:
        wait_until_idle(array)
        present_bytes = array.asnumpy()
    assert saved_bytes is not None
    addresses = (ctypes.c_void_p(array_bytes.ctypes.data) for array_bytes in (present_bytes, saved_bytes))
    return bool(_LIBC.memcmp(*addresses, ctypes.c_size_t(saved_bytes.size)) == 0)


def zeros_like(array: Any) -> Any:
    """Return zeros like `array`, as an `mx.np` or an `mx.nd` array, as MXNet's operators do not mix these two kinds."""
    array_module = mx.np if isinstance(array, mx.np.ndarray) else mx.nd
    return array_module.zeros(array.shape, ctx=array.context, dtype=array.dtype)


def leaves(state: Any) -> Iterator[Any]:
    """Yield the arrays in an optimizer state, which is an array, None, or a nested list or tuple of arrays and None."""
    if isinstance(state, list | tuple):
        for nested_state in state:
            yield from leaves(nested_state)
    elif isinstance(state, mx.nd.NDArray):
        yield state


VARIANCE_OF_MEAN = {"running_mean": "running_var", "moving_mean": "moving_var"}  # in Gluon, and in Module


def is_statistic(name: str) -> bool:
    """Whether a forward pass of BatchNorm changes the parameter of this name."""
    return name.endswith((*VARIANCE_OF_MEAN, *VARIANCE_OF_MEAN.values()))


def mean_variance_pairs(names: list[str], slots: list[Slot]) -> list[tuple[Slot, Slot]]:
    """Return (mean, variance) of each BatchNorm layer, found by the names that Gluon and Module use.

    If two nets use the same names, the first mean with a name belongs to the first variance with this name.
    """
    means_by_name: dict[str, list[Slot]] = {}
    for name, name_slot in zip(names, slots, strict=True):
        for mean_ending, variance_ending in VARIANCE_OF_MEAN.items():
            if name.endswith(mean_ending):
                means_by_name.setdefault(name.removesuffix(mean_ending) + variance_ending, []).append(name_slot)
    return [
        (means_by_name[name].pop(0), name_slot)
        for name, name_slot in zip(names, slots, strict=True)
        if means_by_name.get(name)
    ]
