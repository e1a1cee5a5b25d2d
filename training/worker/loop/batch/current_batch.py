"""Current batch of a worker's script, and the weights of its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyntrain.training.sampling.sharding import Indices, parts
from dyntrain.training.worker.arrays import zeros
from dyntrain.training.worker.loop.batch.changes import UnsummedGradient
from dyntrain.training.worker.loop.batch.consensus import StepConsensus
from dyntrain.training.worker.loop.batch.owners import ArrayOwners
from dyntrain.training.worker.loop.batch.parts import GradientBuffer
from dyntrain.training.worker.refused import Refused
from dyntrain.training.worker.state.slots import overwrite
from dyntrain.training.worker.state.training_state import TrainingState, differentiable

ERROR_HINT = (
    "(batch {number} of epoch {epoch} has {size} samples, of which this worker had {here}: use len(data) where the "
    "script has a fixed batch size, as in a shape)"
)
SLICES_UNKNOWN_ERROR = (
    "loss='mean' on several devices: divide the batch with gluon.utils.split_and_load, which shows each device's "
    "samples; or leave .mean() and loss='mean' out, with trainer.step(batch_size)"
)
NOT_UPDATED_ERROR = (
    "trainer.allreduce_grads() was not followed by trainer.update(...). For a loss scaler that skips updates, use "
    "amp.init_trainer(trainer)"
)
NOT_STEPPED_ERROR = (
    "trainer.step(...) was not called for the last batch: call it once for each batch. To accumulate batches, use "
    "grad_req='add'; to skip a batch, see training/GUIDE.md, edit 6"
)
OUTSIDE_LOOP_ERROR = (
    "trainer.{what} was called outside of the loop over the job's batches: loop over job.loader(...) in place of a "
    "DataLoader or an iterator, or over epoch.batches(dataset)"
)
ACCUMULATES_BESIDE_ERROR = (
    "one trainer stepped while another accumulates gradients (grad_req='add'): step all trainers at the same batches, "
    "or set grad_req='write' for the accumulated gradients"
)


class CurrentBatch:
    """A batch of a step, in which `indices` are the indices of this worker's samples.

    `size`: number of samples in the step, over all workers. `spectates`: whether this worker has only a copy of another
    worker's sample, which does not count. `accumulated_record`: the previous batch's `accumulation_record` if gradients
    accumulate. `at_most`: largest number of samples that the script gets at once.
    """

    def __init__(
        self,
        indices: Indices,
        size: int,
        spectates: bool,
        accumulated_record: dict[str, Any] | None = None,
        at_most: int | None = None,
    ) -> None:
        accumulated_record = accumulated_record or {"batches": 0, "samples": 0, "here": 0, "weights": {}}
        self.indices, self.size, self.spectates = indices, size, spectates
        self.batches: int = accumulated_record["batches"] + 1
        self.samples: int = accumulated_record["samples"] + size
        self.own_samples: int | None = (
            None if accumulated_record["here"] is None else accumulated_record["here"] + len(indices)
        )
        self.weights: dict[str, float] = dict(accumulated_record["weights"])
        self.parts = parts(indices, at_most)
        self.part_number = 0  # number of the script's current part
        self._buffer = GradientBuffer()
        self.kinds: set[str] = set()  # kinds of the losses that were examined
        self.refused = False  # whether this worker has a reason to stop the job
        self.raw: dict[int, UnsummedGradient] = {}  # by ids: gradients that the script changes before they are summed
        self.judged = False  # whether `kinds` were compared with a trainer, so that the next loss is for another update
        self.counted = False  # whether the script asked for a sum over the workers
        self.slices: list[int] | None = None  # samples of each device that has any, if the script has split the batch
        self.summed: Any = None  # the trainer whose gradients are summed and not yet applied
        self.updated: list[Any] = []
        self._owners: ArrayOwners | None = None
        self.is_first = False  # whether this is the loop's first batch in this process
        self.reported_rules: set[str] = set()  # rules of losses that were reported
        self.void = False
        self.consensus: StepConsensus  # of the last sum
        self.carried: list[Any] = []  # rows that are summed with the gradients
        self.rates: dict[str, float] = {}  # values that the update depends on
        self.divides: dict[Any, float] = {}  # divisor of each trainer's step(n), if known before the sum
        self.unsure: dict[Any, tuple[float, list[str]] | None] = {}  # other possible divisor, see `divisor_of_means`
        self.fingerprint: Sequence[float] = ()  # of the numbers in the loss
        self._copies: list[tuple[Any, Any]] = []

    @property
    def part(self) -> Indices:
        return self.parts[self.part_number]

    def fewest_device_samples(self, devices: int) -> int:
        """Return the number of samples on the device that has the fewest samples.

        On a device with one sample, an array with a value for each sample looks like one value for the batch.
        """
        return min(self.slices or [len(self.part) // devices])

    @property
    def sample_counts(self) -> set[int]:
        """Two numbers of samples over all workers: in the current batch, and in all batches whose gradients are
        accumulated.
        """
        return {self.size, self.samples}

    @property
    def has_next_part(self) -> bool:
        """Whether another part of this worker's share follows."""
        return self.part_number + 1 < len(self.parts)

    def buffer_gradients(self, trainer: Any) -> None:
        """Add the current part's gradients to a buffer; after the last part, copy the buffer's sums to the trainer's
        gradients.
        """
        device_weights = self.device_weights(trainer)
        part_weight = len(self.part) / self.size if trainer.loss_kind == "mean" else 1.0
        self._buffer.add(trainer, [part_weight * device_weight for device_weight in device_weights])
        if not self.has_next_part:
            self._buffer.put_back(trainer)

    def owners(self, trainers: Sequence[Any]) -> ArrayOwners:
        """Return which trainers own which arrays, for the arrays that the trainers had at the first call of this
        method.
        """
        self._owners = self._owners or ArrayOwners(trainers)
        return self._owners

    @property
    def accumulation_record(self) -> dict[str, Any]:
        return {"batches": self.batches, "samples": self.samples, "here": self.own_samples, "weights": self.weights}

    def copy_arrays(self, state: TrainingState) -> None:
        """Copy the arrays that a pass over another worker's sample must not change, for `restore_arrays`."""
        own_arrays = [array for arrays in state.own_arrays() for array in arrays]
        own_arrays += [gradient for param in state.accumulated for gradient in param.list_grad()]
        self._copies = [(array, array.copy()) for array in own_arrays]

    def restore_arrays(self, state: TrainingState) -> None:
        script_ids = {id(array) for array in state.set_by_script} if self._copies else set()
        for array, array_copy in self._copies:
            if id(array) not in script_ids:
                overwrite(array, array_copy)
        self._copies = []

    def scale_by_share(self, trainer: Any, state: TrainingState) -> None:
        """Set the weight of this worker's mean loss: the share of the step's samples that this worker has.

        Gradients accumulated so far are multiplied by their earlier weight and divided by the new weight. So one
        multiplication by the last batch's weight is right for the accumulated gradients of all batches.
        """
        if trainer.loss_kind != "mean" or self.spectates or len(self.parts) > 1:
            return
        trainer_number = str(state.trainers.index(trainer))
        weight, previous_weight = len(self.indices) / self.size, self.weights.get(trainer_number, 1.0)
        if self.batches > 1 and weight != previous_weight:
            for param in trainer._params:
                if param.grad_req == "add":
                    for gradient in param.list_grad():
                        gradient *= previous_weight / weight
        self.weights[trainer_number] = weight

    @staticmethod
    def mark_stale(trainer: Any) -> None:
        """Mark the trainer's gradients from before this batch as stale, such as those that a GAN's generator leaves in
        its critic.

        Unmarked stale gradients would be summed again if this batch has no samples for a device or a part of the net.
        """
        for param in trainer._params:
            for array in (param._data or ()) if param.grad_req == "write" else ():
                array._fresh_grad = False

    def error_hint(self, number: int, epoch: int) -> str | None:
        """Return a hint on the share's size for an error that the script raises, or None if this worker has the whole
        batch.
        """
        own_samples = len(self.part)
        return (
            None
            if own_samples == self.size
            else ERROR_HINT.format(number=number, epoch=epoch, size=self.size, here=own_samples)
        )

    def device_weights(self, trainer: Any) -> list[float]:
        """Return the factor of each device's gradients by which all samples of this worker have the same weight.

        The factors are not 1 for losses that are means, because a mean over fewer samples gives each sample more
        weight.
        """
        device_count = len(trainer._contexts)
        if trainer.loss_kind != "mean" or device_count == 1 or self.spectates:
            return [1.0] * device_count
        if self.slices is None:
            raise Refused(SLICES_UNKNOWN_ERROR)
        device_weights = [samples * device_count / len(self.part) for samples in self.slices]
        return [*device_weights, *[1.0] * (device_count - len(device_weights))]

    @staticmethod
    def undo_scale(trainer: Any, param: Any, state: TrainingState) -> None:
        """Multiply a parameter's accumulated gradients by the weight of this worker's mean, before their sum over the
        workers.
        """
        weights = (state.own.get("accumulated") or {}).get("weights", {})
        weight = weights.get(str(state.trainers.index(trainer)), 1.0)
        if weight != 1.0:
            for gradient in param.list_grad():
                gradient *= weight

    def prepare_sum(self, trainer: Any, state: TrainingState) -> list[float]:
        """Prepare the trainer's gradients for the sum over the workers.

        Returns 1.0 for each parameter whose gradient comes from this worker's samples, and 0.0 for each other
        parameter. A device without samples has gradients of an earlier batch, which are set to zero unless gradients
        accumulate.
        """
        self.restore_arrays(state)
        weight = self.weights.get(str(state.trainers.index(trainer)), 1.0)
        device_weights = self.device_weights(trainer) if len(self.parts) == 1 else [1.0] * len(trainer._contexts)
        has_samples = [0.0] * len(trainer._params)
        for index, param in enumerate(trainer._params):
            if not has_gradient(param):
                continue
            fresh_flags = [array._fresh_grad for array in param.list_data()]
            drops_gradient = self.spectates and param.grad_req != "add"
            for is_fresh, gradient, device_weight in zip(fresh_flags, param.list_grad(), device_weights, strict=True):
                if param.grad_req != "add" and (drops_gradient or not is_fresh):
                    gradient[:] = 0
                elif weight * device_weight != 1.0:
                    gradient *= weight * device_weight
            has_samples[index] = 0.0 if drops_gradient else float(any(fresh_flags))
        return has_samples

    def read_sums(self, trainer: Any, workers: int) -> bool:
        """Read the sums over the workers as `StepConsensus.read_sums` does, and mark the parameters to update.

        A parameter is to be updated if its gradient comes from at least one worker's samples.
        """
        values_agree = self.consensus.read_sums(workers)
        for param, has_samples in zip(trainer._params, self.consensus.has_samples, strict=True):
            if has_gradient(param):
                for array in param.list_data():
                    array._fresh_grad = has_samples
        return values_agree


def has_gradient(param: Any) -> bool:
    return differentiable(param) and param.grad_req != "null"


def gradients_of(param: Any) -> list[Any]:
    """Return a parameter's gradients on all devices, to be pushed to the kvstore; a frozen parameter has one array of
    zeros.
    """
    if has_gradient(param):
        return list(param.list_grad())
    array = param.list_data()[0]
    return [zeros(array.shape, array.dtype, like=array)]


def forget_gradients(trainer: Any) -> None:
    """Mark the gradients of a void step as stale, because they may already be sums over the workers.

    If this worker has no samples in the repeated step, no backward pass replaces the gradients of the void step.
    """
    for param in trainer._params:
        if has_gradient(param) and param.grad_req != "add":
            for array in param.list_data():
                array._fresh_grad = False
