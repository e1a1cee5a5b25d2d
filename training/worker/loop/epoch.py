"""What a script gets for each of its epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # first: says what to install
import numpy as np
from dyntrain.training.worker.arrays import number
from dyntrain.training.worker.data.batches import Dataset
from dyntrain.training.worker.data.loader import Loader
from dyntrain.training.worker.data.randomness import drawn_for, shared_generator
from dyntrain.training.worker.loop.agreed.reduction import Total
from dyntrain.training.worker.loop.training_loop import TrainingLoop


class Epoch(int):
    """One pass over the data, and its number as `range` would give it, which the script's own code can use.

    Membership may change inside `batches`, between two steps.
    """

    def __new__(cls, loop: TrainingLoop, place: int, shift: int) -> Epoch:
        return super().__new__(cls, place + shift)

    def __init__(self, loop: TrainingLoop, place: int, shift: int) -> None:
        self._loop = loop
        self.place = place  # among the job's, over all its loops, from 0
        self.number = place + shift
        self.resumed = loop.resumed
        """Whether the epoch was begun before: what the script did at its beginning is done again, by this worker alone
        or by all. Rates, and what is frozen, are made what they were.
        """

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Pickle as a plain number, as in a script's own checkpoint: `pickle.dump({"epoch": epoch})`."""
        return int, (int(self),)

    @property
    def rank(self) -> int:
        """The coordinator's number for this worker, from 0; changes with the membership."""
        return self._loop.rank

    @property
    def workers(self) -> int:
        return self._loop.workers

    @property
    def step_number(self) -> int:
        """Steps before the current batch since the job began, the same on every worker, whenever it joined.

        For schedules that a script computes itself, batch by batch. Before the batches it is the step at which this
        worker begins.
        """
        return self._loop.position.step

    @property
    def update_due(self) -> bool:
        """With `job.trainer(..., accumulate=K)`, whether the current batch is the last one of its update.

        It is so for every K-th batch of the epoch and for the epoch's last.
        """
        return self._loop.update_due

    def batches(self, dataset: Dataset | Loader) -> Iterator[Any]:
        """Yield this worker's share of each remaining step of the epoch.

        A share is the samples of `dataset` at its indices, stacked along axis 0, or batched as the `job.loader` does.
        Each one must be followed by `trainer.step(...)` of at least one trainer, unless gradients accumulate
        (`grad_req='add'`). In a step with fewer samples than workers, some workers get a sample whose gradient does not
        count.
        """
        return self._loop.feeder.batches(self.place, dataset)

    def enumerate(self, dataset: Dataset | Loader) -> Iterator[tuple[int, Any]]:
        """Yield `batches` with their numbers in the epoch, the same on every worker, whenever it joined."""
        for batch in self._loop.feeder.batches(self.place, dataset):
            yield self._loop.batch_number, batch

    def indices(self) -> Iterator[Any]:
        """Yield the indices of this worker's share of each step, an array, for scripts that load their samples
        themselves.
        """
        return self._loop.feeder.indices(self.place)

    def share(self, count: int) -> range:
        """Slice of `range(count)` that this worker has, to divide a validation set."""
        return range(self.rank * count // self.workers, (self.rank + 1) * count // self.workers)

    def reduce(self, name: str, total: float, count: float | None = None) -> float:
        """Sum of `total` over all workers; with `count`, the sum of totals divided by the sum of counts.

        The result is the same on every worker, so that decisions can depend on it. All workers must call it at the same
        place. It is NaN on all of them if a worker was lost meanwhile. `total` and `count` may be arrays of one number.
        They are summed as floats: to about seven digits, whole numbers exactly up to 2**24.
        """
        return self._loop.totals.reduce(self.place, name, number(total), None if count is None else number(count))

    def sum(self, value: float) -> Total:
        """Sum over all workers of what each counted in its share of the batch.

        For `trainer.step(epoch.sum(words))`, if the loss is divided by a count that differs between batches. Call it
        before the step, at the same places on every worker. Precision is that of `reduce`: seven digits, whole numbers
        exactly up to 2**24.

        If a worker is lost in it, the step is void and the returned number has no effect.
        """
        return self._loop.totals.sum(number(value))

    def random(self, name: str) -> np.random.Generator:
        """Random generator with the same draws on all workers and after every restart.

        The draws follow from the job's seed, the step and `name`; outside of the batches the epoch takes the place of
        the step. A second generator of the same name and step repeats the draws.
        """
        if not isinstance(name, str):
            raise ValueError(f"epoch.random({name!r}): a name, as there may be several draws of one step")
        step = None if self._loop.current is None else self.step_number
        return shared_generator(self._loop.seed, self.number, step, name)

    def per_sample(self, name: str, draw: Callable[[np.random.Generator], Any]) -> Any:
        """Results of `draw` for each sample of the current batch, stacked along axis 0: a GAN's noise, a mask.

            noise = nd.array(epoch.per_sample("noise", lambda generator: generator.normal(size=(100, 1, 1))))

        They follow from the job's seed, the epoch, the sample's index and `name`, so a sample gets the same result on
        any worker and after every restart. Costs about 20 microseconds per sample besides what `draw` takes.
        """
        current = self._loop.current
        if current is None:
            raise RuntimeError("epoch.per_sample() is for the batch in hand, within the loop over the batches")
        return drawn_for(self._loop.seed, self.number, current.part, name, draw)

    def record(self, name: str, total: float, count: float) -> None:
        """Add to a metric of the epoch.

        The coordinator reports the sum of all workers' totals divided by the sum of their counts.
        """
        current = self._loop.current
        if current is None or not current.spectates:
            self._loop.membership.record(name, number(total), number(count))
