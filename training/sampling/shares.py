"""Computes a worker's samples at each position of a job, while the number of workers stays the same. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.batching import Batching, PerWorker
from dyntrain.training.sampling.shard_order import ShardOrder
from dyntrain.training.sampling.sharding import Indices, after_step, batch_size, epoch_order, share

ORDERS_KEPT = 2  # number of epochs whose orders are kept, since prefetching reaches into the next epoch


@dataclass
class Shares:
    """The workers' samples in each step, for `epochs` epochs of `samples` samples.

    `sequence` is the order of the dataset's shards, or None for data without shards.

    `drawn_from` is the dataset's size if an epoch leaves out some samples, otherwise None. `drawn` returns an epoch's
    batches if the script has its own sampler. An epoch's number in the job plus `shift` is the script's number of the
    epoch, which determines the order. `begins` is the generation's first step, in which the shares are made unequal
    (see `_own_rows`). If `begins` is None, no shares are made unequal. `group` is the number of batches in an update.
    """

    samples: int  # number of samples in an epoch
    epochs: int  # number of epochs
    seed: int  # seed of the samples' order
    batching: Batching  # policy for the number of samples in a batch
    sequence: ShardOrder | None = None  # order of the shards
    drawn_from: int | None = None  # size of a dataset of which an epoch leaves out some samples
    drawn: Callable[[int], Sequence[Indices]] | None = None  # an epoch's batches from the script's own sampler
    shift: int = 0  # added to an epoch's number in the job
    begins: int | None = None  # the generation's first step
    group: int = 1  # batches in an update
    _orders: dict[int, tuple[Indices, Indices | None]] = field(
        default_factory=dict
    )  # an epoch's order, and the ends of its batches

    def step_samples(self, workers: int) -> int:
        """Return the number of samples of all workers in a full step."""
        return self.batching.over(workers)

    def size(self, position: Position, workers: int) -> int:
        """Return the number of samples of all workers in the step at `position`."""
        batch_ends = self._kept_order(position.epoch)[1]
        if batch_ends is None:
            return batch_size(self.samples, self.step_samples(workers), position.offset)
        return int(batch_ends[self.batch_number(position, workers)]) - position.offset

    def batch_number(self, position: Position, workers: int) -> int:
        """Return the number of the batch at `position`, counted from the epoch's start."""
        batch_ends = self._kept_order(position.epoch)[1]
        return (
            position.offset // self.step_samples(workers)
            if batch_ends is None
            else int(np.searchsorted(batch_ends, position.offset, "right"))
        )

    def after(self, position: Position, workers: int) -> Position:
        """Return the job's position one step after `position`."""
        return after_step(position, self.samples, self.size(position, workers))

    def take(self, position: Position, number: int, workers: int) -> tuple[Indices, bool]:
        """Return the samples of worker `number` in the step at `position`, and whether the worker spectates.

        A spectating worker has no sample of its own in a step. A spectating worker gets another worker's sample, so
        that its script runs as on the other workers, but its gradient is not used.
        """
        batch, rows, spectates = self.divide_batch(position, number, workers)
        return batch[rows], spectates

    def steps_ahead(self, position: Position, number: int, workers: int) -> Iterator[tuple[int, Indices, Indices]]:
        """Yield (epoch, all samples, positions of worker `number`'s samples) for each step until the job's end."""
        while position.epoch < self.epochs:
            batch, rows, _ = self.divide_batch(position, number, workers)
            yield self.shift + position.epoch, batch, rows
            position = self.after(position, workers)

    def divide_batch(self, position: Position, number: int, workers: int) -> tuple[Indices, Indices, bool]:
        """Return a step's samples, the positions of worker `number`'s samples, and whether this worker spectates."""
        size = self.size(position, workers)
        batch = self._kept_order(position.epoch)[0][position.offset : position.offset + size]
        own_rows = self._own_rows(position, size, number, workers)
        return (batch, own_rows, False) if len(own_rows) else (batch, np.arange(min(self._share_unit, size)), True)

    def is_first_step(self, position: Position) -> bool:
        """Whether a generation or an epoch starts at `position`.

        At the start of a generation or an epoch, a script may begin to use another loss.
        """
        return self.begins is not None and (position.step == self.begins or position.offset == 0)

    def _own_rows(self, position: Position, size: int, number: int, workers: int) -> Indices:
        """Return the positions of this worker's samples within the step's batch.

        If all shares would be equal in a step for which `is_first_step` is true, the first worker takes one sample from
        the last worker. A script may pass a constant to `trainer.step`, as Horovod's scripts do. Unequal shares show
        whether the constant is the number of the worker's samples. In the last batch of the first update, the last
        worker takes one sample from the first worker, since a script may pass that batch's size to `step`.
        """
        rows, active_workers = np.arange(size), min(size, workers)
        is_first_updates_end = self.begins is not None and position.step == self.begins + self.group - 1 != self.begins
        moved_samples = -1 if is_first_updates_end else int(self.is_first_step(position))
        if not moved_samples or size % active_workers or active_workers < 2 or isinstance(self.batching, PerWorker):
            return share(rows, size, 0, number, workers, self._share_unit)
        share_cuts = [
            cut_number * size // active_workers + moved_samples * (0 < cut_number < active_workers)
            for cut_number in range(active_workers + 1)
        ]
        share_cuts += [size] * (workers - active_workers)  # spectators
        return rows[share_cuts[number] : share_cuts[number + 1]]

    @property
    def _share_unit(self) -> int:
        """Number of samples of which each worker's share is a multiple.

        A script that discards short batches expects whole batches, so the number is the batch size for such a script.
        """
        return self.batching.batch if self.drawn_from is not None and isinstance(self.batching, PerWorker) else 1

    def _kept_order(self, epoch: int) -> tuple[Indices, Indices | None]:
        if epoch not in self._orders:
            if len(self._orders) == ORDERS_KEPT:
                del self._orders[min(self._orders)]
            self._orders[epoch] = self._draw_order(self.shift + epoch)
        return self._orders[epoch]

    def _draw_order(self, epoch: int) -> tuple[Indices, Indices | None]:
        if self.drawn is not None:
            batches = self.drawn(epoch)
            return np.concatenate(batches), np.cumsum([len(batch) for batch in batches])
        if self.sequence is not None:
            epoch_samples = self.sequence.epoch(self.seed, epoch, self.batching.over(self.sequence.lanes))
        else:
            epoch_samples = epoch_order(self.drawn_from or self.samples, self.seed, epoch)
        return epoch_samples[: self.samples], None


class Excerpt(Shares):
    """A copy of `shares` in which every batch is `batch`, and this worker's share is the `rows` of the batch."""

    def __init__(self, shares: Shares, batch: Indices, rows: Indices) -> None:
        super().__init__(**{shares_field.name: getattr(shares, shares_field.name) for shares_field in fields(shares)})
        self._batch, self._share = batch, rows

    def divide_batch(self, position: Position, number: int, workers: int) -> tuple[Indices, Indices, bool]:
        return self._batch, self._share, False

    def size(self, position: Position, workers: int) -> int:
        return len(self._batch)
