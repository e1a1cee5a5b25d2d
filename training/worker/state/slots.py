"""Arrays of a training state, read and written in place as raw bytes."""

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

Raw = np.ndarray[Any, np.dtype[np.uint8]]
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Slot:
    """`label` is for people; `name` has no counter of the process in it, so that it is the same on every worker."""

    name: str
    label: str
    shape: tuple[int, ...]
    dtype: str
    copies: tuple[Any, ...]  # the same value on each context

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    def read(self, raw: Raw) -> None:
        array = self.copies[0]
        settle(array)
        check_call(
            _LIB.MXNDArraySyncCopyToCPU(array.handle, raw.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.size))
        )

    def write(self, raw: Raw) -> None:
        for copy in self.copies:
            write(copy, raw)

    def doubles(self) -> Doubles:
        raw = np.empty(self.nbytes, np.uint8)
        self.read(raw)
        return raw.view(self.dtype).astype(np.float64).reshape(-1)

    @property
    def record(self) -> list[Any]:
        """As a packed state lists it."""
        return [self.name, list(self.shape), self.dtype]


def slot(name: str, label: str, copies: list[Any]) -> Slot:
    return Slot(name, label, tuple(copies[0].shape), np.dtype(copies[0].dtype).name, tuple(copies))


def write(array: Any, raw: Raw) -> None:
    settle(array)
    try:
        _fill(array, raw)
    except mx.MXNetError:
        as_shaped(array)
        _fill(array, raw)


def _fill(array: Any, raw: Raw) -> None:
    check_call(
        _LIB.MXNDArraySyncCopyFromCPU(array.handle, raw.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.size))
    )


def overwrite(array: Any, other: Any) -> None:
    """With what `other` holds, once all that is under way with `array` is done."""
    as_shaped(array)
    other.copyto(array)


def settle(array: Any) -> None:
    """Waits for whoever reads it, and then for who writes to it: a forward pass under way, which reads the weights of
    a convolution, may lay them out anew, and the engine knows of that no sooner than the pass comes to it. After
    `wait_to_read` alone their bytes may be moved while they are read: wrong numbers, or a crash of the process.
    """
    check_call(_LIB.MXNDArrayWaitToWrite(array.handle))
    array.wait_to_read()


def as_shaped(array: Any) -> int | None:
    """Its numbers back in the order of its shape: a forward pass that does not train leaves a convolution's weights in
    a layout of oneDNN's own. MXNet copies nothing from outside into it, and of arrays of three or five dimensions not
    even its own. To ask for an array's address, which is returned, lays it out anew (MXNDArrayGetData in MXNet's
    src/c_api/c_api.cc).
    """
    settle(array)
    address = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(address)))
    return address.value


def in_place(array: Any) -> Raw | None:
    """Its bytes where they are, with a row for each number, as long as nothing is under way with it; None where they
    are in the memory of a device.
    """
    if not array.context.device_type.startswith("cpu"):
        return None
    width = np.dtype(array.dtype).itemsize
    address = as_shaped(array) if array.size else None
    if address is None:
        return np.zeros((0, width), np.uint8)
    return np.frombuffer((ctypes.c_uint8 * (array.size * width)).from_address(address), np.uint8).reshape(-1, width)


def same(array: Any, copy: Any) -> bool:
    """Bit by bit. `copy` is in the host's memory; where the array is, too, no other copy is made of it."""
    mine, was = in_place(array), in_place(copy)
    if mine is None:
        settle(array)
        mine = array.asnumpy()
    assert was is not None
    addresses = (ctypes.c_void_p(each.ctypes.data) for each in (mine, was))
    return bool(_LIBC.memcmp(*addresses, ctypes.c_size_t(was.size)) == 0)


def zeros_like(array: Any) -> Any:
    """Of its kind: operators of MXNet's do not mix arrays of NumPy's kind (`npx.set_np()`) with its older ones."""
    module = mx.np if isinstance(array, mx.np.ndarray) else mx.nd
    return module.zeros(array.shape, ctx=array.context, dtype=array.dtype)


def leaves(state: Any) -> Iterator[Any]:
    """The arrays in an optimizer state, which is an array, nothing, or a tuple of such."""
    if isinstance(state, list | tuple):
        for part in state:
            yield from leaves(part)
    elif isinstance(state, mx.nd.NDArray):
        yield state


RUNNING = {"running_mean": "running_var", "moving_mean": "moving_var"}  # in Gluon, and in Module


def is_running(name: str) -> bool:
    """Whether a forward pass of BatchNorm moves the parameter of this name."""
    return name.endswith((*RUNNING, *RUNNING.values()))


def running_pairs(names: list[str], slots: list[Slot]) -> list[tuple[Slot, Slot]]:
    """(mean, variance) of each BatchNorm: by their names, of which Gluon has one pair and Module another. Two nets may
    use the same names: then the first mean of a name belongs to its first variance.
    """
    means: dict[str, list[Slot]] = {}
    for name, each in zip(names, slots, strict=True):
        for ending, partner in RUNNING.items():
            if name.endswith(ending):
                means.setdefault(name.removesuffix(ending) + partner, []).append(each)
    return [(means[name].pop(0), each) for name, each in zip(names, slots, strict=True) if means.get(name)]
