"""The public face: a plain Gluon loop that workers can join and leave.

    job = ElasticJob.join()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {...}, kvstore=job.kvstore)
    for epoch in job.epochs(90, net=net, trainer=trainer, samples=len(dataset), global_batch=256):
        for data, label in epoch.batches(dataset):
            with autograd.record():
                loss = loss_function(net(data), label)
            loss.backward()
            epoch.step(trainer)

Started under a supervisor, the process stands by until it is admitted, and the loop begins at the epoch where the job is. Started
alone, the same script trains on one worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from training.batches import Dataset, fetch_samples
from training.batching import Batching, FixedGlobal, PerWorker
from training.kvstore import ElasticKVStore
from training.membership import Membership
from training.protocol import Position
from training.randomness import seed_generators
from training.schedule import ScaledSchedule, follow_workers
from training.sharding import Indices, after_step, batch_size, epoch_order, is_boundary, share
from training.state import TrainingState


class Epoch:
    """One pass over the data. Membership may change inside `batches`, between two steps."""

    def __init__(self, job: ElasticJob, number: int, order: Indices) -> None:
        self._job, self._order = job, order
        self.number = number
        self._stepped = True

    @property
    def rank(self) -> int:
        """The coordinator's number for this worker, from 0; changes with the membership."""
        return self._job.kvstore.rank

    @property
    def workers(self) -> int:
        return self._job.kvstore.num_workers

    def batches(self, dataset: Dataset) -> Iterator[Any]:
        """This worker's share of each step that is left of the epoch: what `dataset` holds at those indices, stacked along axis 0.

        A step in which there are fewer samples than workers yields nothing to those without one; they take part all the same. Every batch that is
        yielded must be followed by `epoch.step(trainer)`: raises RuntimeError if the loop went on without it.
        """
        while self._job.position.epoch == self.number:
            indices = self._job.next_share(self._order)
            if len(indices):
                self._stepped = False
                yield fetch_samples(dataset, indices)
                if not self._stepped:
                    raise RuntimeError("epoch.step(trainer) was not called for the last batch: the other workers wait for its gradients")
            else:
                self._job.idle_step()
            self._job.after_step(len(indices))

    def step(self, trainer: Any) -> None:
        """Sum the gradients over all workers, divide by the global batch, update. The loss must be summed over samples, not averaged."""
        self._job.apply_step(trainer)
        self._stepped = True

    def share(self, count: int) -> range:
        """This worker's slice of `range(count)`: for dividing a validation set."""
        return range(self.rank * count // self.workers, (self.rank + 1) * count // self.workers)

    def record(self, name: str, total: float, count: float) -> None:
        """Add to a metric of the epoch: the coordinator reports the sum of totals over the sum of counts of all workers."""
        self._job.membership.record(name, float(total), float(count))


class ElasticJob:
    """Made by `join`. `kvstore` goes into the Trainer."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self.kvstore: ElasticKVStore = membership.kvstore
        self.position = Position(epoch=0, offset=0, step=0)
        self._state: TrainingState | None = None
        self._trainer: Any = None
        self._samples = self._seed = 0
        self._average = True
        self._batching: Batching = FixedGlobal(1)
        self._schedule: ScaledSchedule | None = None  # with PerWorker only
        self._applied = False

    @classmethod
    def join(cls, kvstore: str = "dist_sync") -> ElasticJob:
        """Connects to the supervisor's coordinator, or prepares to train alone when there is none. `kvstore`: dist_sync or dist_device_sync."""
        return cls(Membership.join(kvstore))

    def epochs(
        self,
        epochs: int,
        *,
        net: Any,
        trainer: Any,
        samples: int,
        global_batch: int | None = None,
        batching: Batching | None = None,
        seed: int = 0,
        average_statistics: bool = True,
    ) -> Iterator[Epoch]:
        """Yields the epochs that are left, from the first one this worker takes part in.

        `net` must be initialised and must have seen one example (shapes known). Each sample counts once an epoch whatever the membership does.
        `global_batch` samples are in a step over all workers; or `batching` says otherwise: with `PerWorker` the batch, the rate and the schedule
        follow the number of workers, and an LR schedule counts updates of `base_workers`. The global random generators are seeded from `seed` at each
        boundary, and BatchNorm's running statistics are made those of all workers' samples (`average_statistics`).
        A worker that is asked to leave ends here with SystemExit(0).
        """
        if (global_batch is None) == (batching is None):
            raise ValueError("give either global_batch=... or batching=...")
        if min(epochs, samples) < 1 or seed < 0:
            raise ValueError(f"epochs ({epochs}) and samples ({samples}) must be at least 1, the seed ({seed}) not negative")
        self._batching = batching or FixedGlobal(global_batch or 0)
        self._schedule = follow_workers(trainer, self._batching) if isinstance(self._batching, PerWorker) else None
        self._state, self._trainer = TrainingState(net, trainer), trainer
        self._samples, self._seed, self._average = samples, seed, average_statistics
        agreed = f"{self._batching}, running statistics {'averaged' if average_statistics else 'left to each'}"
        try:
            self._arrive(
                self.membership.enter(self._state, epochs=epochs, samples=samples, global_batch=self._batching.batch, seed=seed, batching=agreed)
            )
            while self.position.epoch < epochs:
                number = self.position.epoch
                yield Epoch(self, number, epoch_order(samples, seed, number))
                if self.position.epoch == number:
                    raise RuntimeError(
                        f"the loop left epoch {number} at sample {self.position.offset} of {samples}: go through all of epoch.batches()"
                    )
                # The boundary comes after the caller's own end of the epoch, so that its validation counts for the epoch.
                self._arrive(self.membership.boundary(self.position))
            self.membership.finished()
        finally:
            self.membership.close()

    def _arrive(self, position: Position) -> None:
        """At a boundary whose membership is settled."""
        self.position = position
        seed_generators(self._seed, position.step, self.kvstore.rank)
        if self._schedule is not None and isinstance(self._batching, PerWorker):
            ramp = self._samples if self._batching.ramp is None else self._batching.ramp
            self._schedule.head_for(self._batching.rate_factor(self.kvstore.num_workers), ramp)

    # ---- what Epoch uses

    @property
    def _step_samples(self) -> int:
        """In a full step of the present generation, over all workers."""
        return self._batching.over(self.kvstore.num_workers)

    def next_share(self, order: Indices) -> Indices:
        indices = share(order, self._step_samples, self.position.offset, self.kvstore.rank, self.kvstore.num_workers)
        self.membership.intend(self.position, indices)
        return indices

    def apply_step(self, trainer: Any) -> None:
        assert self._state is not None
        size = batch_size(self._samples, self._step_samples, self.position.offset)
        after = after_step(self.position, self._samples, self._step_samples)
        self._state.zero_idle_gradients()
        self._applied = self.membership.step(after, trainer.allreduce_grads, self._state.gradients, lambda: self._update(trainer, size))

    def _update(self, trainer: Any, size: int) -> None:
        if self._schedule is not None:
            ratio = self._schedule.advance_and_scale(size)
            if ratio != 1.0 and isinstance(self._batching, PerWorker) and self._batching.correct_momentum:
                assert self._state is not None
                self._state.scale_momentum(ratio)
        trainer.update(size)

    def idle_step(self) -> None:
        assert self._state is not None
        self._state.zero_gradients()
        self.apply_step(self._trainer)

    def after_step(self, taken: int) -> None:
        before = self.position
        if self._applied:
            self.position = after_step(before, self._samples, self._step_samples)
            self.membership.stepped(self.position)
        else:
            self.membership.take_back(taken)
        if self.membership.broken:
            self._arrive(self.membership.rejoin(self.position))
        elif is_boundary(self.position, self.membership.first_step, self.membership.segment_steps):
            self._at_boundary(self.position.epoch > before.epoch)

    def _at_boundary(self, epoch_ended: bool) -> None:
        """At the end of an epoch the statistics are averaged now, for the caller's validation; the rest comes after that."""
        if self._average:
            self.membership.average_statistics(self.position)
        if self.membership.broken:
            self._arrive(self.membership.rejoin(self.position))
        elif not epoch_ended:
            self._arrive(self.membership.boundary(self.position))
