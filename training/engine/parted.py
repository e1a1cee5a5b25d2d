"""The native kvstore of one generation: large gradients are pushed in parts, and marks show answered parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.engine.store import Part

# A command without effect on a server that only sums. The first worker of each group always sends it (`CommandType` in
# MXNet's src/kvstore/kvstore_dist_server.h).
SYNC_MODE = 3
NOT_WRITTEN = 0xA5  # a byte: four or more such bytes are a value that no sum has


class PartedStore:
    """A store with `pushpull` by gradient, and `parts_of` and `pushpull_part` to push in a dead worker's place."""

    def __init__(self, native: Any, parts: Sequence[Part]) -> None:
        self._native = native
        self._parts = parts
        self._marks: dict[Part, Mark] = {}  # of the parts of split gradients
        self._by_key: dict[str, list[Part]] = {}
        for part in parts:
            self._by_key.setdefault(part.key, []).append(part)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        values = value if isinstance(value, list) else [value]
        outs = values if out is None else out if isinstance(out, list) else [out]
        for part in self._by_key[str(key)]:
            if part.whole is not None:
                self._native.pushpull(part.number, values, out=outs, priority=priority)
            else:
                # Parts of one array: MXNet's engine pushes each when the previous part is answered.
                slices = [_slice(o, part) for o in outs]
                mark = self._marks.setdefault(part, Mark(slices[0].dtype))
                mark.clear()
                self._native.pushpull(part.number, [_slice(v, part) for v in values], out=slices, priority=priority)
                mark.follow(slices[0])

    def parts_of(self, numbers: Sequence[int]) -> list[Part]:
        """Return the parts of the keys of these numbers, in that order."""
        keys = list(self._by_key)
        return [part for number in numbers for part in self._by_key[keys[number]]]

    def pushpull_part(self, part: Part, flat: Any) -> None:
        """Push `flat`, which has the part's length, for a part; the answer overwrites `flat`."""
        array = flat if part.whole is None else flat.reshape(part.whole)
        self._native.pushpull(part.number, array, out=array)

    def flush(self) -> None:
        """Wait until the servers have processed all pushes of this worker, and their answers so far have arrived.

        A server processes a worker's messages one after another and answers in that order. MXNet's engine also executes
        ready operations in order, as it has one thread for them. With MXNET_CPU_WORKER_NTHREADS above one, the order is
        nearly always the same.
        """
        mx.nd.zeros((1,)).wait_to_read()
        mx.nd.zeros((1,)).wait_to_read()  # for operations that became ready meanwhile
        self._native._send_command_to_servers(SYNC_MODE, "")
        mx.nd.zeros((1,)).wait_to_read()

    def watch(self, array: Any) -> Callable[[], bool]:
        mark = Mark(array.dtype)
        mark.follow(array)
        return mark.is_set

    def has_answer(self, part: Part) -> bool:
        mark = self._marks.get(part)
        return mark is not None and mark.is_set()


class Mark:
    """Shows, without waiting, whether an array is computed: MXNet's engine then copies the array's first element."""

    def __init__(self, dtype: Any) -> None:
        memory = np.empty((1,), dtype=dtype)
        self._bytes = memory.view(np.uint8)
        self._array = mx.nd.from_numpy(memory, zero_copy=True)
        self.clear()

    def clear(self) -> None:
        """Reset the mark. Call `clear` only while no followed array is pending."""
        self._bytes[:] = NOT_WRITTEN

    def follow(self, array: Any) -> None:
        first_of(array).copyto(self._array)

    def is_set(self) -> bool:
        return bool((self._bytes != NOT_WRITTEN).any())


def first_of(array: Any) -> Any:
    """Return a view of the array's first element."""
    return array.as_nd_ndarray().reshape((-1,))[0:1]


def _slice(array: Any, part: Part) -> Any:
    return array.reshape((-1,))[part.start : part.start + part.length]  # a view: writes reach the gradient
