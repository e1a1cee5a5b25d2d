"""What one worker takes at each position of a job, as long as the membership stays as it is. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.batching import Batching, PerWorker
from dyntrain.training.sampling.shard_order import ShardOrder
from dyntrain.training.sampling.sharding import Indices, after_step, batch_size, epoch_order, share

ORDERS_KEPT = 2  # what is loaded ahead is of the next epoch already


@dataclass
class Shares:
    """Of `samples` an epoch, for `epochs` epochs; in the order of their shards, or without one in any. `drawn_from`:
    each epoch takes them out of so many, whole batches of the script's; which are left out is drawn with the order.
    """

    samples: int
    epochs: int
    seed: int
    batching: Batching
    sequence: ShardOrder | None = None
    drawn_from: int | None = None
    _orders: dict[int, Indices] = field(default_factory=dict)

    def step_samples(self, workers: int) -> int:
        """In a full step, over all workers."""
        return self.batching.over(workers)

    def size(self, at: Position, workers: int) -> int:
        """In the step at `at`, over all workers."""
        return batch_size(self.samples, self.step_samples(workers), at.offset)

    def after(self, at: Position, workers: int) -> Position:
        """The position one step later."""
        return after_step(at, self.samples, self.step_samples(workers))

    def take(self, at: Position, number: int, workers: int) -> tuple[Indices, bool]:
        """(samples of worker `number`, whether it spectates). Who has no sample of a step gets one of another worker's,
        whose gradient then counts nothing: so every worker's script goes the same way.
        """
        order = self._order(at.epoch)
        own = share(order, self.step_samples(workers), at.offset, number, workers, self._whole)
        return (own, False) if len(own) else (order[at.offset : at.offset + self._whole], True)

    def ahead(self, at: Position, number: int, workers: int) -> Iterator[tuple[int, Indices]]:
        """(epoch, samples) of each step from `at` on to the end of the job."""
        while at.epoch < self.epochs:
            yield at.epoch, self.take(at, number, workers)[0]
            at = self.after(at, workers)

    @property
    def _whole(self) -> int:
        """What a share is never cut into less of: a script that discards short batches is written for whole ones."""
        return self.batching.batch if self.drawn_from is not None and isinstance(self.batching, PerWorker) else 1

    def _order(self, epoch: int) -> Indices:
        if epoch not in self._orders:
            if len(self._orders) == ORDERS_KEPT:
                del self._orders[min(self._orders)]
            order = (
                epoch_order(self.drawn_from or self.samples, self.seed, epoch)
                if self.sequence is None
                else self.sequence.epoch(self.seed, epoch, self.batching.over(self.sequence.lanes))
            )
            self._orders[epoch] = order[: self.samples]
        return self._orders[epoch]
