"""Object that a script gets for each of its epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # first: says what to install
import numpy as np
from dyntrain.training.worker.arrays import number
from dyntrain.training.worker.data.batches import Dataset
from dyntrain.training.worker.data.loader import Loader
from dyntrain.training.worker.data.randomness import draw_per_sample, shared_generator
from dyntrain.training.worker.loop.agreed.reduction import Total
from dyntrain.training.worker.loop.training_loop import TrainingLoop


class Epoch(int):
    """One pass over the data. An Epoch is also an int, the epoch's number, so a script can use an Epoch like a number
    from `range`.

    Workers may join and leave between two steps of `batches`.
    """

    def __new__(cls, loop: TrainingLoop, job_epoch: int, epoch_shift: int) -> Epoch:
        return super().__new__(cls, job_epoch + epoch_shift)

    def __init__(self, loop: TrainingLoop, job_epoch: int, epoch_shift: int) -> None:
        self._loop = loop
        self.job_epoch = job_epoch  # number of the epoch in the job, over all loops, from 0
        self.number = job_epoch + epoch_shift
        self.resumed = loop.epoch_resumed
        """Whether the epoch was begun before. Then the script's lines at its beginning run again, on this worker or on
        all; learning rates and frozen layers are restored afterwards.
        """

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Pickle the epoch as a plain number, because a script may store the epoch in a checkpoint of its own."""
        return int, (int(self),)

    @property
    def rank(self) -> int:
        """The coordinator's number for this worker, from 0; may change when workers join or leave."""
        return self._loop.rank

    @property
    def workers(self) -> int:
        return self._loop.workers

    @property
    def step_number(self) -> int:
        """Number of steps before the current batch since the job began, equal on all workers.

        A script can compute its own schedules from `step_number`. Before the loop over the batches, `step_number` is
        the step at which this worker begins.
        """
        return self._loop.position.step

    @property
    def update_due(self) -> bool:
        """Whether the current batch is the last batch of an update, in a script with `job.trainer(..., accumulate=K)`.

        An update ends with every K-th batch of the epoch, and with the epoch's last batch.
        """
        return self._loop.update_due

    def batches(self, dataset: Dataset | Loader) -> Iterator[Any]:
        """Yield this worker's share of each remaining step of the epoch.

        A share consists of samples of `dataset`, stacked along axis 0. A `job.loader` in place of a dataset batches the
        samples as its arguments say. After each share the script must call `step` of at least one trainer, unless
        gradients accumulate (`grad_req='add'`). In a step with fewer samples than workers, some workers get a copy of
        another worker's sample, whose gradient does not count.
        """
        return self._loop.feeder.batches(self.job_epoch, dataset)

    def enumerate(self, dataset: Dataset | Loader) -> Iterator[tuple[int, Any]]:
        """Yield each of the `batches` with its number in the epoch, which is equal on all workers."""
        for batch in self._loop.feeder.batches(self.job_epoch, dataset):
            yield self._loop.batch_number, batch

    def indices(self) -> Iterator[Any]:
        """Yield an array of indices for this worker's share of each step, for scripts that load samples themselves."""
        return self._loop.feeder.indices(self.job_epoch)

    def share(self, count: int) -> range:
        """Return this worker's slice of `range(count)`, to divide a validation set among the workers."""
        return range(self.rank * count // self.workers, (self.rank + 1) * count // self.workers)

    def reduce(self, name: str, total: float, count: float | None = None) -> float:
        """Return the sum of `total` over all workers; with `count`, the sum of `total` divided by the sum of `count`.

        The result is equal on every worker, so a script can make decisions by the result. All workers must call
        `reduce` at the same place of the script. The result is NaN on all workers if a worker was lost meanwhile.
        `total` and `count` may be arrays of one number. The result is exact to about seven digits, and for whole
        numbers up to 2**24.
        """
        return self._loop.totals.reduce(self.job_epoch, name, number(total), None if count is None else number(count))

    def sum(self, value: float) -> Total:
        """Return the sum over all workers of a number that each worker has counted in its share of the batch.

        Call `trainer.step(epoch.sum(words))` if a loss is to be divided by a count, such as of words, that differs
        between batches. Call `sum` before `trainer.step`, at the same place of the script on every worker. The
        precision is about seven digits, and whole numbers are exact up to 2**24.

        If a worker is lost meanwhile, the step is void and the returned number has no effect.
        """
        return self._loop.totals.sum(number(value))

    def random(self, name: str) -> np.random.Generator:
        """Return a random generator with the same draws on all workers and after every restart.

        The draws depend on the job's seed, the step and `name`. Outside of the loop over the batches, the draws depend
        on the epoch instead of the step. A second generator with the same name in the same step repeats the draws.
        """
        if not isinstance(name, str):
            raise ValueError(f"epoch.random({name!r}): must be a text that names the draw")
        step = None if self._loop.current is None else self.step_number
        return shared_generator(self._loop.seed, self.number, step, name)

    def per_sample(self, name: str, draw: Callable[[np.random.Generator], Any]) -> Any:
        """Call `draw` for each sample that this worker has in the batch, and return the results stacked along axis 0.

        The result for a sample depends on the job's seed, the epoch, the sample's index and `name`, so the result is
        the same on any worker and after every restart. Each sample costs about 20 microseconds besides the time of
        `draw`.

        For a GAN's noise, a script can write:

            noise = nd.array(epoch.per_sample("noise", lambda generator: generator.normal(size=(100, 1, 1))))
        """
        batch = self._loop.current
        if batch is None:
            raise RuntimeError(
                "epoch.per_sample() was called outside of the loop over the batches: it needs the current batch"
            )
        return draw_per_sample(self._loop.seed, self.number, batch.part, name, draw)

    def record(self, name: str, total: float, count: float) -> None:
        """Add this worker's total and count to a metric of the epoch.

        The coordinator reports the sum of all workers' totals divided by the sum of their counts.
        """
        batch = self._loop.current
        if batch is None or not batch.spectates:
            self._loop.membership.record(name, number(total), number(count))
