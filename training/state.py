"""The state of a training job as one block of bytes: what joiners receive and commits hold.

Block: 8 bytes big-endian length of a JSON header, the header, then the raw arrays one after another in the header's order. What must be equal
on all workers (parameters that train, optimizer state) comes first, each worker's own (running statistics) after it. No pickle anywhere.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from mxnet.base import _LIB, check_call

import training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip

from training.block import allocate, checksum
from training.protocol import Position
from training.statistics import Doubles

_LENGTH = 8


class StateError(RuntimeError):
    """The state is damaged, or belongs to another model."""


@dataclass(frozen=True)
class _Slot:
    name: str
    shape: tuple[int, ...]
    dtype: str
    copies: tuple[Any, ...]  # the same value on each context

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


class TrainingState:
    """The parameters of `net` and the optimizer state of `trainer`, in place.

    Raises ValueError when a parameter's shape is not known yet: a joiner could not tell where to put what it receives.
    """

    def __init__(self, net: Any, trainer: Any) -> None:
        self._trainer = trainer
        own = net.collect_params() if hasattr(net, "collect_params") else net
        trained = {param.name for param in trainer._params if param.grad_req != "null"}
        for param in own.values():
            if param._data is None:
                raise ValueError(
                    f"parameter {param.name} is not initialised: call net.initialize() and pass one example through the net before job.epochs()"
                )
        # Names carry a per-process counter in Gluon (dense0_, dense1_); places do not.
        parameters = [_slot(f"p{i}", param.list_data()) for i, param in enumerate(own.values()) if param.name in trained]
        self._equal = [*parameters, *self._optimizer_slots()]
        self._own = [_slot(f"a{i}", param.list_data()) for i, param in enumerate(own.values()) if param.name not in trained]
        self._statistics = _running(own, self._own)
        self.layout = hashlib.sha256(json.dumps([(s.name, s.shape, s.dtype) for s in [*self._equal, *self._own]]).encode()).hexdigest()[:16]

    @property
    def gradient_keys(self) -> list[tuple[str, tuple[int, ...], str]]:
        """(key, shape, dtype) as the Trainer will push them: by its own index."""
        return [(str(i), tuple(p.shape), np.dtype(p.dtype).name) for i, p in enumerate(self._trainer._params) if p.grad_req != "null"]

    @property
    def gradients(self) -> list[Any]:
        """In the order in which the Trainer pushes them."""
        return [gradient for p in self._trainer._params if p.grad_req != "null" for gradient in p.list_grad()[:1]]

    @property
    def nbytes(self) -> int:
        return sum(slot.nbytes for slot in [*self._equal, *self._own])

    def _optimizer_slots(self) -> list[_Slot]:
        """MXNet makes optimizer state at the first update; it is made here, so that a joiner has somewhere to receive it."""
        slots: list[_Slot] = []
        for i, param in enumerate(self._trainer._params):
            if param.grad_req == "null":
                continue
            for updater, data in zip(self._trainer._updaters, param.list_data(), strict=True):
                if i not in updater.states:
                    updater.states[i] = updater.optimizer.create_state_multi_precision(i, data)
                    updater.states_synced[i] = True
            leaves = [list(_leaves(updater.states[i])) for updater in self._trainer._updaters]
            slots += [_slot(f"o{i}.{j}", list(copies)) for j, copies in enumerate(zip(*leaves, strict=True))]
        return slots

    def pack(self, position: Position, allocate: Callable[[int], memoryview] = allocate) -> memoryview:
        """A copy of the whole state, in memory from `allocate`. Waits for the engine's pending writes."""
        arrays = [*self._equal, *self._own]
        header = json.dumps(
            {
                "layout": self.layout,
                "position": position.model_dump(),
                "equal": sum(slot.nbytes for slot in self._equal),
                "scalars": self._scalars(),
                "arrays": [(slot.name, slot.shape, slot.dtype) for slot in arrays],
            }
        ).encode()
        block = allocate(_LENGTH + len(header) + self.nbytes)
        block[:_LENGTH] = len(header).to_bytes(_LENGTH, "big")
        block[_LENGTH : _LENGTH + len(header)] = header
        at = _LENGTH + len(header)
        for slot in arrays:
            _read(slot.copies[0], np.frombuffer(block, np.uint8, slot.nbytes, at))
            at += slot.nbytes
        return block

    def install(self, block: bytes | bytearray | memoryview) -> Position:
        """Take over a packed state; returns its position. Raises StateError when it is not one of this model."""
        header, at = _header(block)
        if header["layout"] != self.layout:
            raise StateError(f"the state is of another model: layout {header['layout']}, this model has {self.layout}")
        if len(block) != at + self.nbytes:
            raise StateError(f"the state is cut short: {len(block)} bytes of {at + self.nbytes}")
        for slot in [*self._equal, *self._own]:
            raw = np.frombuffer(block, np.uint8, slot.nbytes, at)
            for copy in slot.copies:
                _write(copy, raw)
            at += slot.nbytes
        self._set_scalars(header["scalars"])
        return Position(**header["position"])

    def _scalars(self) -> dict[str, Any]:
        optimizer = self._trainer._optimizer
        scheduler = optimizer.lr_scheduler
        return {
            "num_update": optimizer.num_update,
            "lr": optimizer.lr,
            "updates": [[int(device), sorted(counts.items())] for device, counts in optimizer._all_index_update_counts.items()],
            "scheduler": {k: v for k, v in sorted(vars(scheduler).items()) if isinstance(v, int | float | str)} if scheduler is not None else {},
        }

    def _set_scalars(self, scalars: dict[str, Any]) -> None:
        optimizer = self._trainer._optimizer
        optimizer.num_update, optimizer.lr = scalars["num_update"], scalars["lr"]
        for device, counts in scalars["updates"]:
            own = optimizer._all_index_update_counts.setdefault(device, {})
            own.clear()
            own.update(dict(counts))
        if optimizer.lr_scheduler is not None:
            vars(optimizer.lr_scheduler).update(scalars["scheduler"])

    def scale_momentum(self, ratio: float) -> None:
        """For SGD and NAG, which keep the rate inside their buffer; other optimizers of MXNet apply it outside and need nothing."""
        if not isinstance(self._trainer._optimizer, mx.optimizer.SGD | mx.optimizer.NAG) or not self._trainer._optimizer.momentum:
            return
        for updater in self._trainer._updaters:
            for state in updater.states.values():
                momentum = state[0] if isinstance(state, list | tuple) else state  # with multi_precision the weights stand beside it
                momentum *= ratio

    def statistics(self) -> tuple[Doubles, Doubles]:
        """BatchNorm's running means and variances, one after another; of the first context, where each has its own."""
        mean, variance = (np.concatenate([_values(slots[which]) for slots in self._statistics] or [np.zeros(0)]) for which in (0, 1))
        return mean, variance

    def set_statistics(self, means: Doubles, variances: Doubles) -> None:
        """What `statistics` gives, on every context."""
        for which, values in enumerate((means, variances)):
            at = 0
            for slots in self._statistics:
                slot = slots[which]
                size = int(np.prod(slot.shape, dtype=np.int64))
                raw = np.ascontiguousarray(values[at : at + size].astype(slot.dtype)).view(np.uint8)
                for copy in slot.copies:
                    _write(copy, raw)
                at += size

    def zero_idle_gradients(self) -> None:
        """On contexts that had no part of the batch while others had: theirs are those of an earlier step."""
        for param in self._trainer._params:
            fresh = [data._fresh_grad for data in param.list_data()] if param.grad_req != "null" else []
            if any(fresh):
                for data, gradient in zip(param.list_data(), param.list_grad(), strict=True):
                    if not data._fresh_grad:
                        gradient[:] = 0
                        data._fresh_grad = True

    def zero_gradients(self) -> None:
        """For a step in which this worker has no sample: it still has to push."""
        for param in self._trainer._params:
            if param.grad_req != "null":
                for gradient in param.list_grad():
                    gradient[:] = 0
                for data in param.list_data():
                    data._fresh_grad = True  # what backward would have set


def digest(block: bytes | bytearray | memoryview) -> str:
    """Sixteen hex digits over what must be equal on all workers: position, scalars, trained parameters, optimizer state."""
    header, at = _header(block)
    # A script may set the rate by itself, and is then a step ahead on one worker and not on another when a step is voided.
    scalars = {name: value for name, value in header["scalars"].items() if name != "lr"}
    shared = json.dumps([header["layout"], header["position"], scalars], sort_keys=True).encode()
    return checksum(shared, memoryview(block)[at : at + header["equal"]]).hex()[:16]


def _header(block: bytes | bytearray | memoryview) -> tuple[dict[str, Any], int]:
    size = int.from_bytes(block[:_LENGTH], "big")
    if not 0 < size <= len(block) - _LENGTH:
        raise StateError("the state has no header")
    try:
        return json.loads(bytes(block[_LENGTH : _LENGTH + size])), _LENGTH + size
    except ValueError as error:
        raise StateError(f"the state's header is damaged: {error}") from error


def _running(own: Any, slots: list[_Slot]) -> list[tuple[_Slot, _Slot]]:
    """(mean, variance) of each BatchNorm: by their names, of which Gluon has one pair and Module another."""
    by_place = {slot.name: slot for slot in slots}
    found = {param.name: by_place[f"a{i}"] for i, param in enumerate(own.values()) if f"a{i}" in by_place}
    pairs = []
    for name, mean in found.items():
        for ending, partner in (("running_mean", "running_var"), ("moving_mean", "moving_var")):
            if name.endswith(ending) and (variance := found.get(name.removesuffix(ending) + partner)):
                pairs.append((mean, variance))
    return pairs


def _values(slot: _Slot) -> Doubles:
    raw = np.empty(slot.nbytes, np.uint8)
    _read(slot.copies[0], raw)
    return raw.view(slot.dtype).astype(np.float64).reshape(-1)


def _leaves(state: Any) -> Iterator[Any]:
    """The arrays in an optimizer state, which is an array, nothing, or a tuple of such."""
    if isinstance(state, list | tuple):
        for part in state:
            yield from _leaves(part)
    elif state is not None:
        yield state


def _slot(name: str, copies: list[Any]) -> _Slot:
    return _Slot(name, tuple(copies[0].shape), np.dtype(copies[0].dtype).name, tuple(copies))


def _read(array: Any, raw: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    check_call(_LIB.MXNDArraySyncCopyToCPU(array.handle, raw.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.size)))


def _write(array: Any, raw: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    try:
        check_call(_LIB.MXNDArraySyncCopyFromCPU(array.handle, raw.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.size)))
    except mx.MXNetError:  # a forward pass left the array in a layout of MKL-DNN's, into which only MXNet itself copies
        mx.nd.array(raw.view(array.dtype).reshape(array.shape), dtype=array.dtype).copyto(array)
