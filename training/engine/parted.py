"""The native store of one generation, with large gradients pushed in parts, and marks that show what is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.engine.store import Part

# A command that changes nothing in a server that sums: it is told so by the first worker of each group anyway
# (`CommandType` in MXNet's src/kvstore/kvstore_dist_server.h).
SYNC_MODE = 3
NOT_WRITTEN = 0xA5  # a byte; four or more of them are no sum that ever comes


class PartedStore:
    """`pushpull` by gradient; `parts_of` and `pushpull_part` for whoever pushes in a dead worker's place."""

    def __init__(self, native: Any, parts: Sequence[Part]) -> None:
        self._native = native
        self._parts = parts
        self._marks: dict[Part, Mark] = {}  # of what is split
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
                # Parts of one array, so the engine pushes each when the one before is answered.
                slices = [_slice(o, part) for o in outs]
                mark = self._marks.setdefault(part, Mark(slices[0].dtype))
                mark.clear()
                self._native.pushpull(part.number, [_slice(v, part) for v in values], out=slices, priority=priority)
                mark.follow(slices[0])

    def parts_of(self, numbers: Sequence[int]) -> list[Part]:
        """The parts of the keys of these numbers, in that order."""
        keys = list(self._by_key)
        return [part for number in numbers for part in self._by_key[keys[number]]]

    def pushpull_part(self, part: Part, flat: Any) -> None:
        """`flat` has the part's length; its answer overwrites it."""
        array = flat if part.whole is None else flat.reshape(part.whole)
        self._native.pushpull(part.number, array, out=array)

    def flush(self) -> None:
        """A server takes one message after the other from a worker, and answers so. Like MXNet's engine, which has one
        thread for what is ready: what is given to it last is done last. With MXNET_CPU_WORKER_NTHREADS above one that
        is so nearly always.
        """
        mx.nd.zeros((1,)).wait_to_read()
        mx.nd.zeros((1,)).wait_to_read()  # of what became ready meanwhile
        self._native._send_command_to_servers(SYNC_MODE, "")
        mx.nd.zeros((1,)).wait_to_read()

    def watch(self, array: Any) -> Callable[[], bool]:
        mark = Mark(array.dtype)
        mark.follow(array)
        return mark.is_set

    def has(self, part: Part) -> bool:
        mark = self._marks.get(part)
        return mark is not None and mark.is_set()


class Mark:
    """Whether an array is there: the engine copies its first element once it is, and to look does not wait."""

    def __init__(self, dtype: Any) -> None:
        memory = np.empty((1,), dtype=dtype)
        self._bytes = memory.view(np.uint8)
        self._array = mx.nd.from_numpy(memory, zero_copy=True)
        self.clear()

    def clear(self) -> None:
        """While it follows nothing that is under way."""
        self._bytes[:] = NOT_WRITTEN

    def follow(self, array: Any) -> None:
        first_of(array).copyto(self._array)

    def is_set(self) -> bool:
        return bool((self._bytes != NOT_WRITTEN).any())


def first_of(array: Any) -> Any:
    """Its first element, as a view."""
    return array.as_nd_ndarray().reshape((-1,))[0:1]


def _slice(array: Any, part: Part) -> Any:
    return array.reshape((-1,))[part.start : part.start + part.length]  # a view: writes reach the gradient
