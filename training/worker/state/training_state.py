"""Packs the state of a training job into one block of bytes, which joining workers receive and commits contain.

A block contains the length of a JSON header (8 bytes, big-endian), the header, then the raw arrays in the header's
order. Arrays that must be equal on all workers (parameters that can train, optimizer states, gradients that are being
accumulated, arrays that a script keeps) come first. The last arrays are each worker's own arrays (running statistics).
Nothing is pickled.
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
from dyntrain.training.worker.state.block import HEADER_LENGTH_BYTES, StateError, allocate, header_of
from dyntrain.training.worker.state.carried import CarriedGradients
from dyntrain.training.worker.state.equal import PLAIN_VALUES_LABEL, checksums
from dyntrain.training.worker.state.kept import KeptArrays
from dyntrain.training.worker.state.memory import value_checksums
from dyntrain.training.worker.state.optimizer_states import OptimizerStates
from dyntrain.training.worker.state.scalars import Scalars
from dyntrain.training.worker.state.slots import Slot, byte_view, is_statistic, leaves, mean_variance_pairs, slot, write

VALUES_COMPARED = 4  # number of an array's values that `sampled_checksums` reads


class TrainingState:
    """The training state of this worker, which is read and written in place.

    The state contains the parameters and optimizers of all `trainers`, the arrays `kept` by the script, and the
    parameters of `net` that no trainer has. The state also contains the parameters `beside`, which the script's earlier
    loops used. The attribute `own` contains the values that the library itself adds to the state, for example
    `job.memory`. Raises ValueError if a parameter's shape is not known yet, as a joining worker needs the shapes of all
    parameters.
    """

    def __init__(self, net: Any, *trainers: Any, kept: KeptArrays | None = None, beside: Sequence[Any] = ()) -> None:
        self.trainers, self.kept = trainers, kept or KeptArrays()
        self.own: dict[str, Any] = {}
        self.received: dict[str, Any] | None = None  # the values of the last block that was installed
        trainer_params = {id(param): param for trainer in trainers for param in trainer._params}
        for param in self.kept.parameters:
            if id(param) in trainer_params:
                raise ValueError(f"job.keep() got {param.name}, which a trainer has: it is part of the state already")
        known_ids = {*trainer_params, *map(id, self.kept.parameters)}
        other_parameters = {id(param): param for param in [*_parameters_of(net), *beside] if id(param) not in known_ids}
        for param in [*trainer_params.values(), *other_parameters.values()]:
            if param._data is None:
                raise ValueError(
                    f"parameter {param.name} is not initialised: call net.initialize() and pass one example "
                    "through the net before job.epochs()"
                )
            if param.shape is None:  # SymbolBlock.imports sets the values, but no shape
                param.shape = param.list_data()[0].shape
        self._equal = [param for param in trainer_params.values() if differentiable(param)]
        self._untrained = [param for param in trainer_params.values() if not differentiable(param)] + list(
            other_parameters.values()
        )
        self.carried = CarriedGradients(self._equal)
        # Gluon's names contain a per-process counter (dense0_, dense1_); places in a list do not.
        shapes_and_types = [
            (tuple(param.shape), np.dtype(param.dtype).name) for param in [*self._equal, *self._untrained]
        ]
        optimizer_names = [type(trainer._optimizer).__name__ for trainer in trainers]
        shapes_and_types += [(kept_slot.shape, kept_slot.dtype) for _, kept_slot in self._kept_slots()]
        self.layout = hashlib.sha256(
            json.dumps([shapes_and_types, len(self._equal), optimizer_names]).encode()
        ).hexdigest()[:16]
        self.optimizer_states = OptimizerStates(trainers)
        self.scalars = Scalars(trainers)
        self.scalars.capture()  # raises for a value that is too large, before the first step

    # ---- gradients

    @property
    def gradient_keys(self) -> list[tuple[str, tuple[int, ...], str]]:
        """The (key, shape, dtype) of every possible gradient, also for parameters that are frozen at present."""
        return [
            (gradient_key(trainer_number, param_number), tuple(param.shape), np.dtype(param.dtype).name)
            for trainer_number, trainer in enumerate(self.trainers)
            for param_number, param in enumerate(trainer._params)
            if differentiable(param)
        ]

    @property
    def parameters(self) -> list[Any]:
        """All parameters that the state contains."""
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
        """The parameters in `equal` that a forward pass is known to change."""
        return [self._equal[param_number] for param_number in self.own.get("written", [])]

    def script_sets(self, array: Any) -> None:
        """Store that the script sets `array`, the data of a parameter, during a batch.

        If the parameter does not train and is no running statistic, its array must be equal on all workers from now on.
        """
        for param_number, param in enumerate(self._untrained):
            if any(array is data for data in param._data) and not (
                self._is_script_written(param_number) or is_statistic(param.name)
            ):
                self.own["set"] = sorted([*self.own.get("set", []), param_number])

    @property
    def set_by_script(self) -> list[Any]:
        """The arrays of the parameters that `script_sets` has stored."""
        return [
            context_array
            for param_number, param in enumerate(self._untrained)
            if self._is_script_written(param_number)
            for context_array in param.list_data()
        ]

    def _is_script_written(self, param_number: int) -> bool:
        return param_number in self.own.get("set", ())

    def drop_carried(self) -> None:
        """Drop the carried gradients after the update that used these gradients."""
        self.carried.drop_all()
        self.own.pop("accumulated", None)

    def drop_zeroed(self) -> None:
        """Drop the carried gradients that the script has set to zero itself."""
        if self.carried.drop_zeroed():
            self.own.pop("accumulated", None)

    # ---- packing

    def _slots(self) -> tuple[list[Slot], list[Slot]]:
        """Return the arrays that must be equal on all workers, and this worker's own arrays.

        Both lists of arrays change, for example, when the script freezes parameters.
        """
        equal_slots = [
            slot(f"p{param_number}", param.name, param.list_data()) for param_number, param in enumerate(self._equal)
        ]
        for trainer_number, trainer in enumerate(self.trainers):
            for param_number, param in enumerate(trainer._params):
                if param_number in trainer._updaters[0].states:
                    context_states = [list(leaves(updater.states[param_number])) for updater in trainer._updaters]
                    equal_slots += [
                        slot(
                            f"o{trainer_number}.{param_number}.{array_number}",
                            f"{param.name} in the optimizer",
                            list(copies),
                        )
                        for array_number, copies in enumerate(zip(*context_states, strict=True))
                    ]
        equal_slots += self.carried.slots()
        equal_slots += [
            slot(f"s{param_number}", param.name, param.list_data())
            for param_number, param in enumerate(self._untrained)
            if self._is_script_written(param_number)
        ]
        equal_slots += [kept_slot for running_name, kept_slot in self._kept_slots() if not running_name]
        return equal_slots, [own_slot for _, own_slot in self._own_slots()]

    def _kept_slots(self) -> list[tuple[str, Slot]]:
        """Return (name, array) of each kept array. The name is '' unless the array is a running statistic."""
        numbered_arrays = enumerate(self.kept.arrays())
        return [
            (array.running_name, slot(f"a{number}k" if array.running_name else f"k{number}", array.label, array.copies))
            for number, array in numbered_arrays
        ]

    def _own_slots(self) -> list[tuple[str, Slot]]:
        """Return (name, array) of each array that may differ from worker to worker."""
        own_slots = [
            (param.name, slot(f"a{param_number}", param.name, param.list_data()))
            for param_number, param in enumerate(self._untrained)
            if not self._is_script_written(param_number)
        ]
        return own_slots + [(running_name, kept_slot) for running_name, kept_slot in self._kept_slots() if running_name]

    def compared_arrays(self) -> Iterator[tuple[str, str, Any]]:
        """Yield (name, label, values) of the weights and of the kept arrays, to compare two training runs."""
        for compared_slot in self._slots()[0]:
            if compared_slot.name[0] in "psk":
                yield compared_slot.name, compared_slot.label, compared_slot.copies[0].asnumpy()

    @property
    def nbytes(self) -> int:
        return sum(state_slot.nbytes for slots in self._slots() for state_slot in slots)

    def pack(self, position: Position, allocate: Callable[[int], memoryview] = allocate) -> memoryview:
        """Return a copy of the whole state, in memory from `allocate`.

        Waits for MXNet's pending writes to the arrays.
        """
        equal_slots, own_slots = self._slots()
        header = json.dumps(
            {
                "layout": self.layout,
                "position": position.model_dump(),
                "scalars": {**self.scalars.capture(), "untouched": self.optimizer_states.untouched_state_numbers},
                "own": self.own,
                "arrays": [packed_slot.record for packed_slot in [*equal_slots, *own_slots]],
            }
        ).encode()
        offset = HEADER_LENGTH_BYTES + len(header)
        block = allocate(offset + sum(packed_slot.nbytes for packed_slot in [*equal_slots, *own_slots]))
        block[:HEADER_LENGTH_BYTES] = len(header).to_bytes(HEADER_LENGTH_BYTES, "big")
        block[HEADER_LENGTH_BYTES:offset] = header
        for packed_slot in [*equal_slots, *own_slots]:
            packed_slot.read(np.frombuffer(block, np.uint8, packed_slot.nbytes, offset))
            offset += packed_slot.nbytes
        return block

    def sampled_checksums(self, position: Position) -> tuple[tuple[str, str], ...]:
        """Return (name, checksum) over a few values of each array that must be equal on all workers.

        Checksums of the values in `job.memory` are appended. `sampled_checksums` is fast enough to be called at the end
        of every epoch and segment. The position determines which values of an array are read, so different values are
        read at different positions.
        """
        index_generator = np.random.Generator(np.random.PCG64([position.step]))
        sampled_values = []
        for equal_slot in self._slots()[0]:
            array = equal_slot.copies[0]
            if array.size:
                sampled_values.append(
                    (equal_slot.label, _numbers_at(array, index_generator.integers(0, array.size, VALUES_COMPARED)))
                )
        array_checksums = tuple((label, f"{zlib.crc32(values().tobytes()):08x}") for label, values in sampled_values)
        return array_checksums + value_checksums(self.own)

    def checks(self, block: bytes | bytearray | memoryview) -> tuple[tuple[str, str], ...]:
        """Return (name, checksum) of each part of the packed state `block` that must be equal on all workers."""
        labels = [PLAIN_VALUES_LABEL, *(checked_slot.label for checked_slot in self._slots()[0])]
        return tuple(zip(labels, checksums(block), strict=True))

    def install(self, block: bytes | bytearray | memoryview) -> Position:
        """Install a packed state, and return the position of the state.

        Raises StateError for a truncated block or a block of another model.
        """
        header, offset = header_of(block)
        if header["layout"] != self.layout:
            raise StateError(
                f"the received state is of another model: layout {header['layout']}, this model has {self.layout}"
            )
        self.scalars.restore(
            header["scalars"]
        )  # first, as the choice of training parameters decides which optimizer states exist
        array_names = {record[0] for record in header["arrays"]}
        self.optimizer_states.allocate_packed(array_names, header["scalars"].get("untouched", []))
        self.carried.allocate_packed(array_names)
        self.own, self.received = header["own"], header["scalars"]
        equal_slots, own_slots = self._slots()
        slots = [*equal_slots, *own_slots]
        if [installed_slot.record for installed_slot in slots] != header["arrays"]:
            raise StateError(
                "the received state is of another model: its optimizer keeps other arrays than this script's optimizer"
            )
        if len(block) != offset + sum(installed_slot.nbytes for installed_slot in slots):
            raise StateError(
                f"the received state is cut short: {len(block)} bytes of "
                f"{offset + sum(installed_slot.nbytes for installed_slot in slots)}"
            )
        for installed_slot in slots:
            installed_slot.write(np.frombuffer(block, np.uint8, installed_slot.nbytes, offset))
            offset += installed_slot.nbytes
        return Position(**header["position"])

    # ---- running statistics

    def statistics(self) -> tuple[Doubles, Doubles]:
        """Return BatchNorm's running means as one array, and its variances as another, from the first context."""
        statistic_pairs = self._mean_variance_pairs()
        means, variances = (
            np.concatenate([pair[index].doubles() for pair in statistic_pairs] or [np.zeros(0)]) for index in (0, 1)
        )
        return means, variances

    def set_statistics(self, means: Doubles, variances: Doubles) -> None:
        """Set BatchNorm's running means and variances, in the form that `statistics` returns, on every context."""
        for statistic_number, values in enumerate((means, variances)):
            offset = 0
            for mean_and_variance in self._mean_variance_pairs():
                value_count = int(np.prod(mean_and_variance[statistic_number].shape, dtype=np.int64))
                raw_bytes = np.ascontiguousarray(
                    values[offset : offset + value_count].astype(mean_and_variance[statistic_number].dtype)
                ).view(np.uint8)
                for context_copy in mean_and_variance[statistic_number].copies:
                    write(context_copy, raw_bytes)
                offset += value_count

    def _mean_variance_pairs(self) -> list[tuple[Slot, Slot]]:
        own_slots = self._own_slots()
        return mean_variance_pairs([name for name, _ in own_slots], [own_slot for _, own_slot in own_slots])

    def statistic_arrays(self) -> list[Any]:
        """Return the arrays that a forward pass of BatchNorm changes, on all contexts."""
        return [array for param in self._untrained if is_statistic(param.name) for array in param.list_data()]

    def own_arrays(self) -> list[list[Any]]:
        """Return the arrays of each parameter that does not train, as a forward pass may change its arrays."""
        return [param.list_data() for param in self._untrained]


def _numbers_at(array: Any, indices: Any) -> Callable[[], Any]:
    """Return a function that returns the values of `array` at `indices`.

    For an array on a GPU, the returned function waits for an operator, so call the function after the operators of all
    arrays are queued. For an array in the CPU's memory, the values are read directly, as operators for all arrays of a
    large model take 50 ms.
    """
    if (raw_bytes := byte_view(array)) is not None:
        sampled_bytes = raw_bytes[indices]
        return lambda: sampled_bytes
    index_array = mx.nd.array(indices, ctx=array.context, dtype="int64")
    return mx.nd.take(array.as_nd_ndarray().reshape((-1,)), index_array).asnumpy  # type: ignore[no-any-return]


def differentiable(param: Any) -> bool:
    """Whether a parameter can train, even if the parameter is frozen at present. Running statistics can never train."""
    return bool(getattr(param, "_differentiable", param.grad_req != "null"))


def gradient_key(trainer: int, parameter: int) -> str:
    return f"{trainer}:{parameter}" if trainer else str(parameter)


def _parameters_of(net: Any) -> list[Any]:
    """Return the parameters of a Block, of a ParameterDict, or of a list of Blocks and ParameterDicts."""
    if net is None:
        return []
    if isinstance(net, list | tuple):
        return [param for part in net for param in _parameters_of(part)]
    return list((net.collect_params() if hasattr(net, "collect_params") else net).values())
