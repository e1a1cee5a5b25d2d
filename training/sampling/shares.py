"""Samples of one worker at each position of a job, while the membership stays the same. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.batching import Batching, PerWorker
from dyntrain.training.sampling.shard_order import ShardOrder
from dyntrain.training.sampling.sharding import Indices, after_step, batch_size, epoch_order, share

ORDERS_KEPT = 2  # prefetching reaches into the next epoch


@dataclass
class Shares:
    """Samples of each step, for `epochs` epochs of `samples` samples; `sequence` is the order of their shards, if any.

    `drawn_from` is the dataset's size, if an epoch leaves some samples out; the order decides which. `drawn` returns an
    epoch's batches if the script has its own sampler. `shift` is added to an epoch's number in the job; the sum is the
    script's number, by which the order is drawn. `begins` is the generation's first step, of an update of `group`
    batches, in which the shares are made unequal (see `_rows`); with None, all shares are equal.
    """

    samples: int
    epochs: int
    seed: int
    batching: Batching
    sequence: ShardOrder | None = None
    drawn_from: int | None = None
    drawn: Callable[[int], Sequence[Indices]] | None = None
    shift: int = 0
    begins: int | None = None
    group: int = 1
    _orders: dict[int, tuple[Indices, Indices | None]] = field(
        default_factory=dict
    )  # an epoch's order, and the ends of its batches

    def step_samples(self, workers: int) -> int:
        """Samples of a full step, over all workers."""
        return self.batching.over(workers)

    def size(self, position: Position, workers: int) -> int:
        """Samples of the step at `position`, over all workers."""
        ends = self._order(position.epoch)[1]
        if ends is None:
            return batch_size(self.samples, self.step_samples(workers), position.offset)
        return int(ends[self.batch_number(position, workers)]) - position.offset

    def batch_number(self, position: Position, workers: int) -> int:
        """Number of the batch at `position` in its epoch."""
        ends = self._order(position.epoch)[1]
        return (
            position.offset // self.step_samples(workers)
            if ends is None
            else int(np.searchsorted(ends, position.offset, "right"))
        )

    def after(self, position: Position, workers: int) -> Position:
        """Position one step later."""
        return after_step(position, self.samples, self.size(position, workers))

    def take(self, position: Position, number: int, workers: int) -> tuple[Indices, bool]:
        """Samples of worker `number`, and whether the worker spectates.

        A spectating worker has no sample of its own in a step. Such a worker gets another worker's sample, whose
        gradient is not counted, so that every worker's script takes the same path.
        """
        batch, rows, spectates = self.divide(position, number, workers)
        return batch[rows], spectates

    def ahead(self, position: Position, number: int, workers: int) -> Iterator[tuple[int, Indices, Indices]]:
        """Yield (epoch, all workers' samples, indices of this worker's) for each step until the job's end."""
        while position.epoch < self.epochs:
            batch, rows, _ = self.divide(position, number, workers)
            yield self.shift + position.epoch, batch, rows
            position = self.after(position, workers)

    def divide(self, position: Position, number: int, workers: int) -> tuple[Indices, Indices, bool]:
        """Same as `take`, as (all workers' samples, indices of this worker's, whether it spectates)."""
        size = self.size(position, workers)
        batch = self._order(position.epoch)[0][position.offset : position.offset + size]
        own_rows = self._rows(position, size, number, workers)
        return (batch, own_rows, False) if len(own_rows) else (batch, np.arange(min(self._whole, size)), True)

    def tries(self, position: Position) -> bool:
        """Whether a generation or an epoch starts at `position`, where a script may begin to use another loss."""
        return self.begins is not None and (position.step == self.begins or position.offset == 0)

    def _rows(self, position: Position, size: int, number: int, workers: int) -> Indices:
        """Indices of this worker's share.

        If all shares of a step that `tries` would be equal, the first worker takes one sample from the last worker. The
        unequal shares show whether a script that passes a constant to `step` (as Horovod's scripts do) counts its
        samples, or divides its loss by their number. In the last batch of the first update, the last worker takes one
        from the first worker instead, since `step` may get that batch's size.
        """
        rows, takers = np.arange(size), min(size, workers)
        last = self.begins is not None and position.step == self.begins + self.group - 1 != self.begins
        moved = -1 if last else int(self.tries(position))
        if not moved or size % takers or takers < 2 or isinstance(self.batching, PerWorker):
            return share(rows, size, 0, number, workers, self._whole)
        ends = [k * size // takers + moved * (0 < k < takers) for k in range(takers + 1)]
        ends += [size] * (workers - takers)  # spectators
        return rows[ends[number] : ends[number + 1]]

    @property
    def _whole(self) -> int:
        """Unit in which shares are cut: a script that discards short batches expects whole batches."""
        return self.batching.batch if self.drawn_from is not None and isinstance(self.batching, PerWorker) else 1

    def _order(self, epoch: int) -> tuple[Indices, Indices | None]:
        if epoch not in self._orders:
            if len(self._orders) == ORDERS_KEPT:
                del self._orders[min(self._orders)]
            self._orders[epoch] = self._draw(self.shift + epoch)
        return self._orders[epoch]

    def _draw(self, epoch: int) -> tuple[Indices, Indices | None]:
        if self.drawn is not None:
            batches = self.drawn(epoch)
            return np.concatenate(batches), np.cumsum([len(batch) for batch in batches])
        if self.sequence is not None:
            order = self.sequence.epoch(self.seed, epoch, self.batching.over(self.sequence.lanes))
        else:
            order = epoch_order(self.drawn_from or self.samples, self.seed, epoch)
        return order[: self.samples], None


class Excerpt(Shares):
    """Copy of other shares, as if each batch were `batch`, and this worker's share its `rows`."""

    def __init__(self, shares: Shares, batch: Indices, rows: Indices) -> None:
        super().__init__(**{attribute.name: getattr(shares, attribute.name) for attribute in fields(shares)})
        self._batch, self._share = batch, rows

    def divide(self, position: Position, number: int, workers: int) -> tuple[Indices, Indices, bool]:
        return self._batch, self._share, False

    def size(self, position: Position, workers: int) -> int:
        return len(self._batch)
