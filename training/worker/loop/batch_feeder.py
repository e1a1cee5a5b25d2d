"""Give a script its worker's share of each batch, whole or in parts, and start the probe of the first batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.sampling.sharding import Indices
from dyntrain.training.sampling.shares import Excerpt
from dyntrain.training.worker.data.batches import Dataset, fetch_samples
from dyntrain.training.worker.data.loader import Loader, samples_of
from dyntrain.training.worker.loop.batch.current_batch import NOT_STEPPED_ERROR, NOT_UPDATED_ERROR, CurrentBatch
from dyntrain.training.worker.loop.batch.thread_context import thread_context
from dyntrain.training.worker.loop.probe_child import ProbeChild
from dyntrain.training.worker.loop.probe_driver import probe_first_batch

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop


class BatchFeeder:
    """Source of the batches of one loop."""

    def __init__(self, loop: TrainingLoop) -> None:
        self._loop, self._probed = loop, False

    def batches(self, number: int, dataset: Dataset | Loader) -> Iterator[Any]:
        """Yield this worker's share of each batch of epoch `number`.

        Raises ValueError if the number of samples in `dataset` is not the number given to `job.epochs`.
        """
        expected_samples = self._loop.shares.drawn_from or self._loop.shares.samples
        if (samples := samples_of(dataset)) != expected_samples:
            raise ValueError(
                f"the dataset has {samples} samples, job.epochs() has samples={expected_samples}: the "
                "numbers must be equal"
            )
        if self._loop.config.drawn is not None:
            self._loop.config.drawn.refuse_changed_sampler()
        for indices in self.indices(number, dataset):
            yield self._load(dataset, indices)

    def indices(self, number: int, dataset: Dataset | Loader | None = None) -> Iterator[Indices]:
        """Yield the indices of this worker's share of each batch, or of the share's parts.

        If `dataset` is None, the script itself loads its samples.
        """
        loop = self._loop
        loop.enter_epoch(number)
        try:
            while loop.position.epoch == number and not loop.membership.over:
                if loop.all_steps_made:  # a worker was lost in the last step, and a generation has formed
                    loop.steps.stop()
                    continue
                if self._is_probe_due():
                    yield from probe_first_batch(loop, dataset)
                loop.current = thread_context.current = batch = loop.steps.begin_batch()
                yield batch.part
                while batch.has_next_part and self._begin_next_part(batch):
                    yield batch.part
                loop.gradients.examine_accumulated()
                thread_context.current = None
                loop.steps.end_batch(batch)
        finally:
            thread_context.current = None

    def _is_probe_due(self) -> bool:
        """Whether to probe the first batch now; a batch is probed only once, at the loop's first step.

        The batch is not probed if the script uses `job.rows`, or if checks or probes are off.
        """
        loop, is_unprobed = self._loop, not self._probed
        if loop.rows or loop.findings.is_off or not (loop.membership.probes and loop.config.probe):
            return False
        self._probed = True
        return is_unprobed and loop.position == loop.anchor == loop.starts

    @property
    def first_batch(self) -> Indices:
        """Indices of all workers' samples in the batch at the loop's current position."""
        return self._loop.shares.divide_batch(self._loop.position, 0, 1)[0]

    @property
    def first_part_size(self) -> int:
        """Number of samples of the first batch that this worker's script gets at once."""
        loop = self._loop
        own_samples = len(loop.shares.divide_batch(loop.position, loop.rank, loop.workers)[1])
        return min(own_samples, loop.config.local_batch_at_most or own_samples)

    def load_part(self, dataset: Dataset | Loader, batch: Indices, rows: Indices) -> Any:
        if isinstance(dataset, Loader):
            loop = self._loop
            return loop.loading.load_rows(dataset, loop.epoch_number, batch, rows)
        return fetch_samples(dataset, batch[rows])

    def set_probe_batch(self, probe_child: ProbeChild, batch: Indices, rows: Indices) -> CurrentBatch:
        """Make the samples `rows` of `batch` the current batch of a probe's child process."""
        loop = self._loop
        loop.probe_child = probe_child
        loop.shares = Excerpt(loop.shares, batch, rows)
        loop.current = current_batch = CurrentBatch(batch[rows], len(batch), spectates=False)
        for trainer in loop.trainers:
            current_batch.mark_stale(trainer)
        thread_context.current = current_batch
        return current_batch

    def _begin_next_part(self, batch: CurrentBatch) -> bool:
        """Begin the next part of this worker's share. Returns False if the step is already void, so that no part
        begins.

        Raises RuntimeError if the script has not called the trainer's `step`, or `update`, for the previous part.
        """
        if batch.summed is not None:
            raise RuntimeError(NOT_UPDATED_ERROR)
        if not batch.updated:
            raise RuntimeError(NOT_STEPPED_ERROR)
        batch.void = self._loop.membership.broken
        if not batch.void:
            batch.updated.clear()
            batch.divides.clear()
            batch.unsure.clear()
            batch.part_number, batch.slices = batch.part_number + 1, None
            self._loop.undo.recall_memories()  # the script must count once per step, not once per part
        return not batch.void

    def _load(self, dataset: Dataset | Loader, indices: Indices) -> Any:
        loop = self._loop
        if loop.probe_child is not None:
            return loop.probe_child.batch
        if not isinstance(dataset, Loader):
            return fetch_samples(dataset, indices)
        part_number = 0 if loop.current is None else loop.current.part_number
        return loop.loading.take(dataset, loop.position, loop.rank, loop.workers, part_number)
