"""What one worker takes at each position of a job, as long as the membership stays as it is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.batching import Batching, PerWorker
from dyntrain.training.sampling.shard_order import ShardOrder
from dyntrain.training.sampling.sharding import Indices, after_step, batch_size, epoch_order, share

ORDERS_KEPT = 2  # what is loaded ahead is of the next epoch already


@dataclass
class Shares:
    """Of `samples` an epoch, for `epochs` epochs; in the order of their shards, or without one in any. `drawn_from`:
    each epoch takes them out of so many, whole batches of the script's; which are left out is drawn with the order.
    `drawn`: the batches of an epoch, where the script has a sampler of its own; they are then of any size. `shift`:
    from an epoch's place in the job to the number that the script gives it, by which its order is drawn. `begins`: the
    first step of the generation, of an update of `group` batches, in which no two numbers that a script may mean are
    alike: see `_rows`. None: the rows of batches stay where they are.
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
    _orders: dict[int, tuple[Indices, Indices | None]] = field(default_factory=dict)  # and where its batches end

    def step_samples(self, workers: int) -> int:
        """In a full step, over all workers."""
        return self.batching.over(workers)

    def size(self, at: Position, workers: int) -> int:
        """In the step at `at`, over all workers."""
        ends = self._order(at.epoch)[1]
        if ends is None:
            return batch_size(self.samples, self.step_samples(workers), at.offset)
        return int(ends[self.batch_number(at, workers)]) - at.offset

    def batch_number(self, at: Position, workers: int) -> int:
        """Of the batch at `at`, in its epoch."""
        ends = self._order(at.epoch)[1]
        return (
            at.offset // self.step_samples(workers) if ends is None else int(np.searchsorted(ends, at.offset, "right"))
        )

    def after(self, at: Position, workers: int) -> Position:
        """The position one step later."""
        return after_step(at, self.samples, self.size(at, workers))

    def take(self, at: Position, number: int, workers: int) -> tuple[Indices, bool]:
        """(samples of worker `number`, whether it spectates). Who has no sample of a step gets one of another worker's,
        whose gradient then counts nothing: so every worker's script goes the same way.
        """
        batch, rows, spectates = self.divide(at, number, workers)
        return batch[rows], spectates

    def ahead(self, at: Position, number: int, workers: int) -> Iterator[tuple[int, Indices, Indices]]:
        """(the script's number of the epoch, samples of all workers, which of these are this worker's) of each step
        from `at` on to the end of the job.
        """
        while at.epoch < self.epochs:
            batch, rows, _ = self.divide(at, number, workers)
            yield self.shift + at.epoch, batch, rows
            at = self.after(at, workers)

    def divide(self, at: Position, number: int, workers: int) -> tuple[Indices, Indices, bool]:
        """`take`, as (samples of all workers, which of these are this worker's, whether it spectates)."""
        size = self.size(at, workers)
        batch = self._order(at.epoch)[0][at.offset : at.offset + size]
        own = self._rows(at, size, number, workers)
        return (batch, own, False) if len(own) else (batch, np.arange(min(self._whole, size)), True)

    def tries(self, at: Position) -> bool:
        """Whether it is a generation's first step, or an epoch's, from which on a script may have another loss."""
        return self.begins is not None and (at.step == self.begins or at.offset == 0)

    def _rows(self, at: Position, size: int, number: int, workers: int) -> Indices:
        """Where all shares of a step that `tries` would be alike, the first worker takes one of the last one's samples:
        a script that tells `step` a constant of a share's size, as Horovod's do, is then seen not to count its samples,
        and one that divides its loss by their number to count them. In the last batch of the first update the last
        worker takes one of the first one's, as that batch's samples may be what `step` is told.
        """
        rows, takers = np.arange(size), min(size, workers)
        last = self.begins is not None and at.step == self.begins + self.group - 1 != self.begins
        more = -1 if last else int(self.tries(at))
        if not more or size % takers or takers < 2 or isinstance(self.batching, PerWorker):
            return share(rows, size, 0, number, workers, self._whole)
        ends = [k * size // takers + more * (0 < k < takers) for k in range(takers + 1)]
        ends += [size] * (workers - takers)  # who spectates
        return rows[ends[number] : ends[number + 1]]

    @property
    def _whole(self) -> int:
        """What a share is never cut into less of: a script that discards short batches is written for whole ones."""
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
    """Of others, as if each batch were `batch`, and this worker's share its `rows`."""

    def __init__(self, of: Shares, batch: Indices, rows: Indices) -> None:
        super().__init__(**{each.name: getattr(of, each.name) for each in fields(of)})
        self._batch, self._share = batch, rows

    def divide(self, at: Position, number: int, workers: int) -> tuple[Indices, Indices, bool]:
        return self._batch, self._share, False

    def size(self, at: Position, workers: int) -> int:
        return len(self._batch)
