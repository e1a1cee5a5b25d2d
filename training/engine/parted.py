"""Wraps MXNet's kvstore: large gradients are pushed in parts, and marks show which parts the servers have answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.engine.store import Part

# A command without effect on a server that only sums. The first worker of each group always sends it (`CommandType` in
# MXNet's src/kvstore/kvstore_dist_server.h).
SYNC_MODE_COMMAND = 3  # the command's number
NOT_WRITTEN_BYTE = 0xA5  # a byte: four or more such bytes are a value that no sum has


class PartedStore:
    """MXNet's kvstore of one generation, which pushes a large gradient in parts.

    Survivors use `parts_of` and `pushpull_part` to push in place of a dead worker.
    """

    def __init__(self, native: Any, parts: Sequence[Part]) -> None:
        self._native = native
        self._parts = parts
        self._marks: dict[Part, AnswerMark] = {}  # of the parts of split gradients
        self._by_key: dict[str, list[Part]] = {}
        for part in parts:
            self._by_key.setdefault(part.key, []).append(part)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        input_arrays = value if isinstance(value, list) else [value]
        output_arrays = input_arrays if out is None else out if isinstance(out, list) else [out]
        for part in self._by_key[str(key)]:
            if part.whole is not None:
                self._native.pushpull(part.number, input_arrays, out=output_arrays, priority=priority)
            else:
                # Parts of one array: MXNet's engine pushes each when the previous part is answered.
                output_slices = [_part_view(output_array, part) for output_array in output_arrays]
                answer_mark = self._marks.setdefault(part, AnswerMark(output_slices[0].dtype))
                answer_mark.clear()
                self._native.pushpull(
                    part.number,
                    [_part_view(input_array, part) for input_array in input_arrays],
                    out=output_slices,
                    priority=priority,
                )
                answer_mark.follow(output_slices[0])

    def parts_of(self, key_numbers: Sequence[int]) -> list[Part]:
        """Return all parts of the keys with the numbers `key_numbers`, in this order."""
        key_names = list(self._by_key)
        return [part for key_number in key_numbers for part in self._by_key[key_names[key_number]]]

    def pushpull_part(self, part: Part, flat: Any) -> None:
        """Push the array `flat`, which has the part's length, for a part.

        The servers' answer, a sum, overwrites `flat`.
        """
        part_array = flat if part.whole is None else flat.reshape(part.whole)
        self._native.pushpull(part.number, part_array, out=part_array)

    def flush(self) -> None:
        """Wait until the servers have processed this worker's pushes, and all answers sent by the servers have arrived.

        A server processes a worker's messages one after another, and answers in the same order. MXNet's engine also
        executes ready operations in order, as this engine has only one thread for CPU operations. With
        MXNET_CPU_WORKER_NTHREADS above one, the engine nearly always keeps the order.
        """
        mx.nd.zeros((1,)).wait_to_read()
        mx.nd.zeros((1,)).wait_to_read()  # for operations that became ready meanwhile
        self._native._send_command_to_servers(SYNC_MODE_COMMAND, "")
        mx.nd.zeros((1,)).wait_to_read()

    def watch(self, array: Any) -> Callable[[], bool]:
        answer_mark = AnswerMark(array.dtype)
        answer_mark.follow(array)
        return answer_mark.is_set

    def has_answer(self, part: Part) -> bool:
        answer_mark = self._marks.get(part)
        return answer_mark is not None and answer_mark.is_set()


class AnswerMark:
    """Shows, without waiting, whether MXNet has computed an array.

    When the array is computed, MXNet copies the array's first element into the mark.
    """

    def __init__(self, dtype: Any) -> None:
        mark_memory = np.empty((1,), dtype=dtype)
        self._bytes = mark_memory.view(np.uint8)
        self._array = mx.nd.from_numpy(mark_memory, zero_copy=True)
        self.clear()

    def clear(self) -> None:
        """Reset the mark. Call `clear` only when the array given to `follow` has been computed."""
        self._bytes[:] = NOT_WRITTEN_BYTE

    def follow(self, array: Any) -> None:
        first_element_of(array).copyto(self._array)

    def is_set(self) -> bool:
        return bool((self._bytes != NOT_WRITTEN_BYTE).any())


def first_element_of(array: Any) -> Any:
    """Return a view of the array's first element."""
    return array.as_nd_ndarray().reshape((-1,))[0:1]


def _part_view(array: Any, part: Part) -> Any:
    return array.reshape((-1,))[part.start : part.start + part.length]  # a view: writes reach the gradient
