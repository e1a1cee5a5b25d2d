"""Computes the batch and the learning rate from the number of workers. Pure.

With `FixedGlobal`, the batch over all workers and the learning rate are constant, so the number of workers does not
change the training's result. With `PerWorker`, the batch over all workers grows with their number, and the learning
rate grows in proportion to the batch (the linear scaling rule of Goyal et al., arXiv 1706.02677). With `PerWorker`, the
rate changes gradually over a ramp, as the momentum still contains the noise of the smaller batch (Lin et al., Dynamic
Mini-batch SGD, arXiv 1904.12043). The momentum buffer of MXNet's SGD contains gradients that are multiplied by the rate
(v = m v - rate * gradient). When the rate changes, the buffer is therefore multiplied by the ratio of the new rate to
the old rate (the momentum correction of Goyal et al., section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dyntrain.training.sampling.whole import whole


@dataclass(frozen=True)
class FixedGlobal:
    """A batching policy: `batch` samples a step over all workers, for any number of workers."""

    batch: int  # samples of a batch over all workers

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", whole("batch", self.batch))

    def __str__(self) -> str:
        return "fixed-global"

    def over(self, workers: int) -> int:
        """Return the number of samples in a step with `workers` workers."""
        return self.batch


@dataclass(frozen=True)
class PerWorker:
    """A batching policy: `batch` samples a step on each worker.

    The script's learning rate is meant for `base_workers` workers, by default `job.size`. After a change of the number
    of workers, the rate reaches its new value after `ramp` samples, or if `ramp` is None after an epoch. With
    `correct_momentum`, the momentum is scaled by the same factor as the rate.
    """

    batch: int  # samples of a batch on each worker
    base_workers: int | None = None  # number of workers for which the script's learning rate is meant
    ramp: int | None = None  # samples until the rate reaches its new value; None: an epoch
    correct_momentum: bool = True  # whether the momentum is scaled like the rate

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", whole("batch", self.batch))
        for field_name, smallest in (("base_workers", 1), ("ramp", 0)):
            if (value := getattr(self, field_name)) is not None:
                object.__setattr__(self, field_name, whole(field_name, value, smallest))

    def __str__(self) -> str:
        ramp_text = "an epoch" if self.ramp is None else f"{self.ramp} samples"
        momentum_text = "scaled" if self.correct_momentum else "left"
        return f"per-worker (rate for {self.meant_for}, ramp over {ramp_text}, momentum {momentum_text})"

    @property
    def meant_for(self) -> int:
        """The number of workers that the script's learning rate is meant for."""
        return self.base_workers or 1

    def of_size(self, size: int) -> PerWorker:
        """Return a copy for a script whose learning rate is meant for `size` workers.

        Raises ValueError if `base_workers` is set to another number.
        """
        if size > 1 and self.base_workers not in (None, size):
            raise ValueError(
                f"base_workers={self.base_workers} and ElasticJob.join(size={size}) differ: both say for how many "
                "workers the script's learning rate is meant, so give only one of them"
            )
        return replace(self, base_workers=self.base_workers or size)

    def over(self, workers: int) -> int:
        """Return the number of samples in a step with `workers` workers."""
        return self.batch * workers

    def rate_factor(self, workers: int) -> float:
        """Return the factor of the script's learning rate with `workers` workers, after the ramp."""
        return workers / self.meant_for


Batching = FixedGlobal | PerWorker


@dataclass(frozen=True)
class Ramp:
    """A factor that changes linearly from `start` at sample `since` to `goal` after `length` more samples.

    `since` and `length` are numbers of samples of all workers, and `since` is counted from the job's start.
    """

    start: float = 1.0  # factor at the ramp's start
    goal: float = 1.0  # factor at the ramp's end
    since: int = 0  # sample at which the ramp starts
    length: int = 0  # number of samples until the ramp's end

    def factor(self, samples: int) -> float:
        """Return the learning rate's factor after `samples` samples."""
        ramp_progress = samples - self.since
        if ramp_progress >= self.length:
            return self.goal
        if ramp_progress <= 0:
            return self.start
        return self.start + (self.goal - self.start) * ramp_progress / self.length

    def towards(self, goal: float, trained_samples: int, ramp_samples: int) -> Ramp:
        """Return a ramp from the present factor to a new goal.

        If the goal is the same, the present ramp is returned.
        """
        return self if goal == self.goal else Ramp(self.factor(trained_samples), goal, trained_samples, ramp_samples)


@dataclass(frozen=True)
class WorkerRate:
    """How far a trainer's learning rate and schedule have progressed.

    The script's learning rate was multiplied by `factor` at the last update. `samples` is the number of samples trained
    so far. `unit` is the number of samples that the script's schedule regards as one update.
    """

    unit: int  # samples of one update in the script's schedule
    samples: int = 0  # number of samples trained so far
    ramp: Ramp = Ramp()  # present change of the learning rate's factor
    factor: float = 1.0  # factor of the learning rate at the last update

    @property
    def updates(self) -> int:
        """The number of updates for the script's schedule, which depends only on the trained samples."""
        return -(-self.samples // self.unit)

    def with_goal(self, goal: float, length: int) -> WorkerRate:
        """Return a state whose factor changes to `goal` over the next `length` samples."""
        return replace(self, ramp=self.ramp.towards(goal, self.samples, length))

    def after(self, samples: int) -> WorkerRate:
        """Return the state at the next update, which trains on `samples` samples over all workers."""
        total_samples = self.samples + samples
        return replace(self, samples=total_samples, factor=self.ramp.factor(total_samples))

    @property
    def numbers(self) -> list[float]:
        """The state as a list of numbers, from which `of_numbers` restores the state on another worker."""
        ramp = self.ramp
        return [self.unit, self.samples, ramp.start, ramp.goal, ramp.since, ramp.length, self.factor]

    @classmethod
    def of_numbers(cls, numbers: Sequence[float]) -> WorkerRate:
        unit, samples, start, goal, since, length, factor = numbers
        return cls(int(unit), int(samples), Ramp(start, goal, int(since), int(length)), factor)
