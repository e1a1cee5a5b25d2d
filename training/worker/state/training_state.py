"""The state of a training job as one block of bytes, which joiners receive and commits hold.

Block: the length of a JSON header (8 bytes, big-endian), the header, then the raw arrays in the header's order. Arrays
that must be equal on all workers (parameters that can train, optimizer states, gradients that are being accumulated,
arrays that a script keeps) come first, and each worker's own (running statistics) after them. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip

from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.statistics import Doubles
from dyntrain.training.worker.state.block import LENGTH, StateError, allocate, header_of
from dyntrain.training.worker.state.carried import Carried
from dyntrain.training.worker.state.equal import NO_ARRAY, checksums
from dyntrain.training.worker.state.kept import Kept
from dyntrain.training.worker.state.memory import checks
from dyntrain.training.worker.state.optimizer_states import OptimizerStates
from dyntrain.training.worker.state.scalars import Scalars
from dyntrain.training.worker.state.slots import Slot, in_place, is_running, leaves, running_pairs, slot, write

SAMPLED = 4  # values of an array that `sampled` compares


class TrainingState:
    """The training state, read and written in place.

    The state has the parameters and optimizers of all `trainers`, the arrays that the script has `kept`, the other
    parameters of `net` (None: none), and `beside`: parameters of earlier loops, which need not be in `trainers`. `own`
    holds the job's own values, a part of the state. Raises ValueError if a parameter's shape is not known yet, as a
    joiner could then not receive the state.
    """

    def __init__(self, net: Any, *trainers: Any, kept: Kept | None = None, beside: Sequence[Any] = ()) -> None:
        self.trainers, self.kept = trainers, kept or Kept()
        self.own: dict[str, Any] = {}
        self.received: dict[str, Any] | None = None  # the values of the last block that was installed
        in_trainers = {id(p): p for trainer in trainers for p in trainer._params}
        for param in self.kept.parameters:
            if id(param) in in_trainers:
                raise ValueError(f"job.keep() of {param.name}, which a trainer has: it is part of the state already")
        known_ids = {*in_trainers, *map(id, self.kept.parameters)}
        other_parameters = {id(p): p for p in [*_parameters_of(net), *beside] if id(p) not in known_ids}
        for param in [*in_trainers.values(), *other_parameters.values()]:
            if param._data is None:
                raise ValueError(
                    f"parameter {param.name} is not initialised: call net.initialize() and pass one example "
                    "through the net before job.epochs()"
                )
            if param.shape is None:  # SymbolBlock.imports sets the values, but no shape
                param.shape = param.list_data()[0].shape
        self._equal = [p for p in in_trainers.values() if differentiable(p)]
        self._untrained = [p for p in in_trainers.values() if not differentiable(p)] + list(other_parameters.values())
        self.carried = Carried(self._equal)
        # Gluon's names contain a per-process counter (dense0_, dense1_); places in a list do not.
        shapes = [(tuple(p.shape), np.dtype(p.dtype).name) for p in [*self._equal, *self._untrained]]
        kinds = [type(trainer._optimizer).__name__ for trainer in trainers]
        shapes += [(part.shape, part.dtype) for _, part in self._kept_slots()]
        self.layout = hashlib.sha256(json.dumps([shapes, len(self._equal), kinds]).encode()).hexdigest()[:16]
        self.optimizer_states = OptimizerStates(trainers)
        self.scalars = Scalars(trainers)
        self.scalars.captured()  # raises for a value that is too large, before the first step

    # ---- gradients

    @property
    def gradient_keys(self) -> list[tuple[str, tuple[int, ...], str]]:
        """(key, shape, dtype) of every possible gradient, also of parameters that are frozen at present."""
        return [
            (gradient_key(t, i), tuple(p.shape), np.dtype(p.dtype).name)
            for t, trainer in enumerate(self.trainers)
            for i, p in enumerate(trainer._params)
            if differentiable(p)
        ]

    @property
    def parameters(self) -> list[Any]:
        """All parameters that travel with the state."""
        return [*self._equal, *self._untrained]

    @property
    def accumulated(self) -> list[Any]:
        """The parameters whose gradients accumulate over batches (`grad_req='add'`)."""
        return self.carried.accumulated

    @property
    def equal(self) -> list[Any]:
        """The parameters that must be equal on all workers."""
        return self._equal

    @property
    def written(self) -> list[Any]:
        """The parameters of `equal` that a forward pass writes, as far as that is known."""
        return [self._equal[i] for i in self.own.get("written", [])]

    def script_sets(self, array: Any) -> None:
        """Note that the script sets an array in a batch.

        If it is a parameter that does not train, and no running statistic, it must be equal on all workers from now on.
        """
        for i, param in enumerate(self._untrained):
            if any(array is data for data in param._data) and not (self._is_set(i) or is_running(param.name)):
                self.own["set"] = sorted([*self.own.get("set", []), i])

    @property
    def set_by_script(self) -> list[Any]:
        """The arrays of the parameters noted by `script_sets`."""
        return [data for i, param in enumerate(self._untrained) if self._is_set(i) for data in param.list_data()]

    def _is_set(self, i: int) -> bool:
        return i in self.own.get("set", ())

    def drop_carried(self) -> None:
        """Drop the carried gradients, after the update that uses them."""
        self.carried.drop()
        self.own.pop("accumulated", None)

    def drop_zeroed(self) -> None:
        """Drop the carried gradients that the script has set to zero itself."""
        if self.carried.drop_zeroed():
            self.own.pop("accumulated", None)

    # ---- packing

    def _slots(self) -> tuple[list[Slot], list[Slot]]:
        """Return (equal on all workers, each worker's own): freezing and custom optimizers change the lists."""
        equal = [slot(f"p{i}", p.name, p.list_data()) for i, p in enumerate(self._equal)]
        for t, trainer in enumerate(self.trainers):
            for i, param in enumerate(trainer._params):
                if i in trainer._updaters[0].states:
                    each = [list(leaves(updater.states[i])) for updater in trainer._updaters]
                    equal += [
                        slot(f"o{t}.{i}.{j}", f"{param.name} in the optimizer", list(copies))
                        for j, copies in enumerate(zip(*each, strict=True))
                    ]
        equal += self.carried.slots()
        equal += [slot(f"s{i}", p.name, p.list_data()) for i, p in enumerate(self._untrained) if self._is_set(i)]
        equal += [each for running, each in self._kept_slots() if not running]
        return equal, [each for _, each in self._own_slots()]

    def _kept_slots(self) -> list[tuple[str, Slot]]:
        """Return the kept arrays, each with its name if it is a running statistic, otherwise ''."""
        kept = enumerate(self.kept.arrays())
        return [
            (each.running, slot(f"a{i}k" if each.running else f"k{i}", each.label, each.copies)) for i, each in kept
        ]

    def _own_slots(self) -> list[tuple[str, Slot]]:
        """Return each worker's own arrays, with their names."""
        own_slots = [
            (p.name, slot(f"a{i}", p.name, p.list_data())) for i, p in enumerate(self._untrained) if not self._is_set(i)
        ]
        return own_slots + [(running, each) for running, each in self._kept_slots() if running]

    def compared(self) -> Iterator[tuple[str, str, Any]]:
        """Yield (name, label, values) of the weights and of the kept arrays, for a comparison of two runs."""
        for part in self._slots()[0]:
            if part.name[0] in "psk":
                yield part.name, part.label, part.copies[0].asnumpy()

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for part in self._slots() for each in part)

    def pack(self, position: Position, allocate: Callable[[int], memoryview] = allocate) -> memoryview:
        """Return a copy of the whole state, in memory from `allocate`. Waits for MXNet's pending writes."""
        equal, each = self._slots()
        header = json.dumps(
            {
                "layout": self.layout,
                "position": position.model_dump(),
                "scalars": {**self.scalars.captured(), "untouched": self.optimizer_states.untouched},
                "own": self.own,
                "arrays": [part.record for part in [*equal, *each]],
            }
        ).encode()
        at = LENGTH + len(header)
        block = allocate(at + sum(part.nbytes for part in [*equal, *each]))
        block[:LENGTH] = len(header).to_bytes(LENGTH, "big")
        block[LENGTH:at] = header
        for part in [*equal, *each]:
            part.read(np.frombuffer(block, np.uint8, part.nbytes, at))
            at += part.nbytes
        return block

    def sampled(self, position: Position) -> tuple[tuple[str, str], ...]:
        """Return (name, checksum) over a few values of each array that must be equal on all workers.

        Checksums of the script's `job.memory` follow. The work is cheap enough for every boundary. The position
        determines which values are read, so that over time all values are.
        """
        places = np.random.Generator(np.random.PCG64([position.step]))
        samples = []
        for part in self._slots()[0]:
            array = part.copies[0]
            if array.size:
                samples.append((part.label, _numbers_at(array, places.integers(0, array.size, SAMPLED))))
        arrays = tuple((label, f"{zlib.crc32(values().tobytes()):08x}") for label, values in samples)
        return arrays + checks(self.own)

    def checks(self, block: bytes | bytearray | memoryview) -> tuple[tuple[str, str], ...]:
        """Return (name, checksum) of all parts of a `block` of the present state that must be equal on all workers."""
        names = [NO_ARRAY, *(part.label for part in self._slots()[0])]
        return tuple(zip(names, checksums(block), strict=True))

    def install(self, block: bytes | bytearray | memoryview) -> Position:
        """Install a packed state; return its position. Raises StateError for a truncated block or another model."""
        header, at = header_of(block)
        if header["layout"] != self.layout:
            raise StateError(f"the state is of another model: layout {header['layout']}, this model has {self.layout}")
        self.scalars.restore(
            header["scalars"]
        )  # first, as the choice of training parameters decides which optimizer states exist
        names = {record[0] for record in header["arrays"]}
        self.optimizer_states.receive(names, header["scalars"].get("untouched", []))
        self.carried.receive(names)
        self.own, self.received = header["own"], header["scalars"]
        equal, each = self._slots()
        slots = [*equal, *each]
        if [part.record for part in slots] != header["arrays"]:
            raise StateError("the state is of another model: its optimizer keeps other arrays than this script's")
        if len(block) != at + sum(part.nbytes for part in slots):
            raise StateError(f"the state is cut short: {len(block)} bytes of {at + sum(p.nbytes for p in slots)}")
        for part in slots:
            part.write(np.frombuffer(block, np.uint8, part.nbytes, at))
            at += part.nbytes
        return Position(**header["position"])

    # ---- running statistics

    def statistics(self) -> tuple[Doubles, Doubles]:
        """Return BatchNorm's running means and variances, each concatenated, from the first context."""
        pairs = self._pairs()
        mean, variance = (
            np.concatenate([pair[index].doubles() for pair in pairs] or [np.zeros(0)]) for index in (0, 1)
        )
        return mean, variance

    def set_statistics(self, means: Doubles, variances: Doubles) -> None:
        """Set running means and variances, in the form that `statistics` returns, on every context."""
        for index, values in enumerate((means, variances)):
            at = 0
            for pair in self._pairs():
                size = int(np.prod(pair[index].shape, dtype=np.int64))
                raw = np.ascontiguousarray(values[at : at + size].astype(pair[index].dtype)).view(np.uint8)
                for copy in pair[index].copies:
                    write(copy, raw)
                at += size

    def _pairs(self) -> list[tuple[Slot, Slot]]:
        own_slots = self._own_slots()
        return running_pairs([name for name, _ in own_slots], [each for _, each in own_slots])

    def running_arrays(self) -> list[Any]:
        """Return the arrays that a forward pass of BatchNorm changes, of every context."""
        return [array for p in self._untrained if is_running(p.name) for array in p.list_data()]

    def own_arrays(self) -> list[list[Any]]:
        """Return the arrays of the parameters that do not train; a forward pass may change them."""
        return [p.list_data() for p in self._untrained]


def _numbers_at(array: Any, places: Any) -> Callable[[], Any]:
    """Return a function that returns the values of `array` at `places`.

    On a device, the function waits for an operator: call it once the operators of all arrays are queued. In the host's
    memory the values are read directly, as operators for all arrays of a large model take 50 ms.
    """
    if (raw := in_place(array)) is not None:
        numbers = raw[places]
        return lambda: numbers
    at = mx.nd.array(places, ctx=array.context, dtype="int64")
    return mx.nd.take(array.as_nd_ndarray().reshape((-1,)), at).asnumpy  # type: ignore[no-any-return]


def differentiable(param: Any) -> bool:
    """Whether a parameter can train, even if it is frozen at present; running statistics never can."""
    return bool(getattr(param, "_differentiable", param.grad_req != "null"))


def gradient_key(trainer: int, parameter: int) -> str:
    return f"{trainer}:{parameter}" if trainer else str(parameter)


def _parameters_of(net: Any) -> list[Any]:
    """Return the parameters of a Block, a ParameterDict, or a list of these."""
    if net is None:
        return []
    if isinstance(net, list | tuple):
        return [param for part in net for param in _parameters_of(part)]
    return list((net.collect_params() if hasattr(net, "collect_params") else net).values())
