"""What a script is given for each of its epochs."""

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
    """One pass over the data, and its number, as `range` would give it: a script's own lines take it so. Membership may
    change inside `batches`, between two steps.
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
        """In a checkpoint of the script's own, as `pickle.dump({"epoch": epoch})`, it is the number."""
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
        """Steps before the batch at hand, since the job began: the same on every worker, whenever it joined. For
        schedules that a script computes itself, batch by batch; before the batches it is where this worker begins.
        """
        return self._loop.position.step

    @property
    def update_due(self) -> bool:
        """With `job.trainer(..., accumulate=K)`, whether the batch at hand is the last one of an update: every K-th of
        the epoch, and its last.
        """
        return self._loop.update_due

    def batches(self, dataset: Dataset | Loader) -> Iterator[Any]:
        """Yield this worker's share of each remaining step of the epoch: what `dataset` holds at those indices, stacked
        along axis 0; or as the `job.loader` joins them.

        Every batch that is yielded must be followed by `trainer.step(...)` of one trainer at least, unless gradients
        add up (`grad_req='add'`). In a step with fewer samples than workers some get a sample whose gradient counts
        nothing.
        """
        return self._loop.feeder.batches(self.place, dataset)

    def enumerate(self, dataset: Dataset | Loader) -> Iterator[tuple[int, Any]]:
        """`batches` with the number of each in its epoch, the same on every worker, whenever it joined."""
        for batch in self._loop.feeder.batches(self.place, dataset):
            yield self._loop.batch_number, batch

    def indices(self) -> Iterator[Any]:
        """`batches` for people with loaders of their own: the indices of this worker's share of each step, an array."""
        return self._loop.feeder.indices(self.place)

    def share(self, count: int) -> range:
        """The slice that this worker has of `range(count)`: for dividing a validation set."""
        return range(self.rank * count // self.workers, (self.rank + 1) * count // self.workers)

    def reduce(self, name: str, total: float, count: float | None = None) -> float:
        """The sum over all workers, or of totals over counts: the same number on every worker, to decide by. All must
        call it at the same place. NaN on all of them when a worker was lost meanwhile. `total` and `count` may be
        arrays of one number, and summed as floats: to about seven digits, whole numbers exactly up to 2**24.
        """
        return self._loop.totals.reduce(self.place, name, number(total), None if count is None else number(count))

    def sum(self, value: float) -> Total:
        """Of what this worker counted in its batch, over all workers: for `trainer.step(epoch.sum(words))`, where the
        loss is divided by something that each batch has more or less of. Before the step, at the same places on every
        worker. To seven digits, as `reduce`; whole numbers up to 2**24 exactly.

        Where a worker is lost in it the step is void, and nothing comes of the number that is returned.
        """
        return self._loop.totals.sum(number(value))

    def random(self, name: str) -> np.random.Generator:
        """Draws that are the same on all workers and after every restart: they follow from the job's seed, the step and
        `name`; outside of the batches from the epoch in place of the step. A second generator of the same name and step
        draws the same again.
        """
        if not isinstance(name, str):
            raise ValueError(f"epoch.random({name!r}): a name, as there may be several draws of one step")
        step = None if self._loop.current is None else self.step_number
        return shared_generator(self._loop.seed, self.number, step, name)

    def per_sample(self, name: str, draw: Callable[[np.random.Generator], Any]) -> Any:
        """What `draw` makes for each sample of the batch in hand, stacked along axis 0: a GAN's noise, a mask.

            noise = nd.array(epoch.per_sample("noise", lambda generator: generator.normal(size=(100, 1, 1))))

        It follows from the job's seed, the epoch, the sample's index and `name`, so that a sample gets the same on
        whichever worker it is, and after every restart. About 20 microseconds a sample beside what `draw` takes.
        """
        current = self._loop.current
        if current is None:
            raise RuntimeError("epoch.per_sample() is for the batch in hand, within the loop over the batches")
        return drawn_for(self._loop.seed, self.number, current.part, name, draw)

    def record(self, name: str, total: float, count: float) -> None:
        """Add to a metric of the epoch: the coordinator reports the sum of totals over the sum of counts of all
        workers.
        """
        current = self._loop.current
        if current is None or not current.spectates:
            self._loop.membership.record(name, number(total), number(count))
