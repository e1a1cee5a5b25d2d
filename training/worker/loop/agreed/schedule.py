"""Learning rates that count samples, so that they do not drift when the number of workers changes, and that follow that
number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet.lr_scheduler import LRScheduler  # isort: skip

from dyntrain.training.sampling.batching import Batching, PerWorker, Ramp

ANOTHER_BATCHING = (
    "a trainer that goes on from a loop over epochs with another batching=: its rate follows the number of workers as "
    "that one said. Make a new trainer, job.trainer(...), for this loop"
)


class SampleSchedule(LRScheduler):  # type: ignore[misc]  # mxnet has no types
    """`inner` was made to count updates of `unit` samples; it is asked with the samples trained on so far in such
    units.

    `samples` is part of the training state. `inner` must follow from the count alone, as all of MXNet's do: a joiner
    asks its own fresh one.
    """

    def __init__(self, inner: Any, unit: int) -> None:
        if unit < 1:
            raise ValueError(f"a unit of {unit} samples: must be at least 1")
        self._inner, self.unit = inner, unit
        self.samples = 0

    @property
    def base_lr(self) -> float:
        return float(self._inner.base_lr)

    @base_lr.setter
    def base_lr(self, value: float) -> None:
        self._inner.base_lr = value

    def advance(self, samples: int) -> None:
        """Before the update that takes so many samples over all workers."""
        self.samples += samples

    def __call__(self, num_update: int) -> float:
        return float(self._inner(-(-self.samples // self.unit)))


class ScaledSchedule(SampleSchedule):
    """`inner` times a factor that goes to its goal over a ramp. Start, goal and factor are plain attributes: they are
    part of the training state.
    """

    def __init__(self, inner: Any, unit: int) -> None:
        super().__init__(inner, unit)
        self.start, self.goal, self.since, self.length = 1.0, 1.0, 0, 0
        self.factor = 1.0  # of the last update

    def head_for(self, goal: float, length: int) -> None:
        """From here on to `goal` times the rate, over `length` samples."""
        ramp = self._ramp.towards(goal, self.samples, length)
        self.start, self.goal, self.since, self.length = ramp.start, ramp.goal, ramp.since, ramp.length

    def advance_and_scale(self, samples: int) -> float:
        """`advance`; returns the ratio of the new factor to that of the update before."""
        self.advance(samples)
        before, self.factor = self.factor, self._ramp.factor(self.samples)
        return self.factor / before

    def __call__(self, num_update: int) -> float:
        return super().__call__(num_update) * self.factor

    @property
    def _ramp(self) -> Ramp:
        return Ramp(self.start, self.goal, self.since, self.length)


class Constant(LRScheduler):  # type: ignore[misc]  # mxnet has no types
    """The rate of an optimizer that has no schedule."""

    def __call__(self, num_update: int) -> float:
        return float(self.base_lr)


class WorkerRates:
    """With `PerWorker`, the rates of all trainers: each trainer's own rate or schedule, made for `base_workers`, behind
    one that counts samples and follows the number of workers. With another batching, nothing.
    """

    def __init__(self, batching: Batching, trainers: Sequence[Any], samples: int) -> None:
        self._batching, self._epoch = batching, samples
        self._schedules: dict[Any, ScaledSchedule] = {}
        if not isinstance(batching, PerWorker):
            if any(isinstance(trainer._optimizer.lr_scheduler, ScaledSchedule) for trainer in trainers):
                raise ValueError(ANOTHER_BATCHING)
            return
        unit = batching.batch * batching.meant_for
        self._schedules = {trainer: _behind(trainer._optimizer, unit) for trainer in trainers}

    def head_for(self, workers: int) -> None:
        """From here on to the rates of so many workers."""
        if isinstance(self._batching, PerWorker):
            ramp = self._epoch if self._batching.ramp is None else self._batching.ramp
            for schedule in self._schedules.values():
                schedule.head_for(self._batching.rate_factor(workers), ramp)

    def advance(self, trainer: Any, samples: int) -> float:
        """Before the trainer's update with `samples` over all workers; what its momentum is to be multiplied by."""
        if not isinstance(self._batching, PerWorker):
            return 1.0
        ratio = self._schedules[trainer].advance_and_scale(samples)
        return ratio if self._batching.correct_momentum else 1.0


def _behind(optimizer: Any, unit: int) -> ScaledSchedule:
    if isinstance(earlier := optimizer.lr_scheduler, ScaledSchedule):
        if earlier.unit != unit:
            raise ValueError(ANOTHER_BATCHING)
        return earlier
    inner = Constant(base_lr=optimizer.lr) if optimizer.lr_scheduler is None else optimizer.lr_scheduler
    optimizer.lr_scheduler = schedule = ScaledSchedule(inner, unit)
    return schedule
