"""Learning rates that count samples, so that changes of the number of workers do not shift a schedule.

With `PerWorker` batches, the learning rates also depend on the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet.lr_scheduler import LRScheduler  # isort: skip

from dyntrain.training.sampling.batching import Batching, PerWorker, WorkerRate

ANOTHER_BATCHING_ERROR = (
    "the trainer was made for a loop over epochs with another batching=, on which its rate depends. Make a new trainer "
    "for this loop by job.trainer(...)"
)


class SampleSchedule(LRScheduler):  # type: ignore[misc]  # mxnet has no types
    """Schedule that calls the schedule `inner` with the number of samples trained on so far, divided by `unit`.

    `inner` takes the number of samples divided by `unit`, rounded up, as its number of updates. `inner` must depend on
    the number of updates alone, as all of MXNet's schedulers do, because a joining worker calls a fresh copy of
    `inner`. The attribute `samples` is part of the training state. `updates`: number of updates made before this
    schedule begins.
    """

    def __init__(self, inner: Any, unit: int, updates: int = 0) -> None:
        if unit < 1:
            raise ValueError(f"a schedule's unit must be at least 1 sample, but it is {unit}")
        self._inner, self.unit = inner, unit
        self.samples = updates * unit

    @property
    def base_lr(self) -> float:
        return float(self._inner.base_lr)

    @base_lr.setter
    def base_lr(self, value: float) -> None:
        self._inner.base_lr = value

    def advance(self, samples: int) -> None:
        """Add an update's number of samples over all workers. Call this method before the update."""
        self.samples += samples

    def __call__(self, num_update: int) -> float:
        return float(self._inner(-(-self.samples // self.unit)))


class _ScaledSchedule(LRScheduler):  # type: ignore[misc]  # mxnet has no types
    """The script's schedule, multiplied by the factor for the present number of workers, for the time of one update."""

    def __init__(self, inner: Any, trainer_rate: WorkerRate) -> None:
        self._inner, self._rate = inner, trainer_rate

    def __call__(self, num_update: int) -> float:
        return float(self._inner(self._rate.updates)) * self._rate.factor


@contextmanager
def worker_rate(trainer: Any) -> Iterator[None]:
    """Within the `with` block, scale the trainer's learning rate for the number of workers, for one update.

    Before and after the update, the optimizer has the script's own learning rate or schedule, which the script may set
    at any time.
    """
    optimizer, trainer_rate = trainer._optimizer, trainer.worker_rate
    if trainer_rate is None:
        yield
        return
    if (schedule := optimizer.lr_scheduler) is not None:
        optimizer.lr_scheduler = _ScaledSchedule(schedule, trainer_rate)
        try:
            yield
        finally:
            optimizer.lr_scheduler = schedule
        return
    script_rate = optimizer.lr
    optimizer.lr = scaled_rate = script_rate * trainer_rate.factor
    try:
        yield
    finally:
        optimizer.lr = (
            script_rate if optimizer.lr == scaled_rate else optimizer.lr / trainer_rate.factor
        )  # an update may lower it


class WorkerRates:
    """Learning rates of all trainers, which depend on the number of workers only with `PerWorker` batches.

    The learning rate or schedule that the script gives a trainer is meant for `job.size` workers.
    """

    def __init__(self, batching: Batching, trainers: Sequence[Any], samples: int) -> None:
        self._batching, self._epoch, self._trainers = batching, samples, trainers
        unit_samples = batching.batch * batching.meant_for if isinstance(batching, PerWorker) else None
        for trainer in trainers:
            if trainer.worker_rate is not None and trainer.worker_rate.unit != unit_samples:
                raise ValueError(ANOTHER_BATCHING_ERROR)
            if unit_samples is not None and trainer.worker_rate is None:
                update_count = (
                    trainer._optimizer.num_update
                )  # a script sets num_update by begin_num_update or load_states
                trainer.worker_rate = WorkerRate(unit_samples, update_count * unit_samples)

    def begin_ramp(self, workers: int) -> None:
        """With `PerWorker` batches, begin to change all learning rates gradually to the rates for this number of
        workers.
        """
        if isinstance(self._batching, PerWorker):
            ramp_samples = self._epoch if self._batching.ramp is None else self._batching.ramp
            for trainer in self._trainers:
                trainer.worker_rate = trainer.worker_rate.with_goal(self._batching.rate_factor(workers), ramp_samples)

    def advance(self, trainer: Any, samples: int) -> float:
        """Advance the trainer's learning rate by an update's number of samples over all workers, before that update.

        Returns the factor by which to multiply the trainer's momentum.
        """
        if not isinstance(self._batching, PerWorker):
            return 1.0
        previous_rate = trainer.worker_rate
        trainer.worker_rate = previous_rate.after(samples)
        return trainer.worker_rate.factor / previous_rate.factor if self._batching.correct_momentum else 1.0
