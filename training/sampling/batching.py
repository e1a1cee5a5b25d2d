"""The batch and the learning rate as functions of the number of workers. Pure.

`FixedGlobal`: the batch over all workers is constant, and so is the learning rate. The number of workers does not
change the mathematics. `PerWorker`: the batch grows with the workers, and the learning rate in proportion to the batch
(the linear scaling rule of Goyal et al., arXiv 1706.02677). The rate does not jump: momentum still contains the noise
of the small batch, so the rate follows a ramp (Lin et al., Dynamic Mini-batch SGD, arXiv 1904.12043). MXNet's SGD keeps
the rate inside its buffer (v = m v - rate * gradient), where a new rate reaches old gradients only if the buffer is
scaled by the ratio of the rates: the momentum correction of Goyal et al., section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dyntrain.training.sampling.whole import whole


@dataclass(frozen=True)
class FixedGlobal:
    """Batches of `batch` samples over all workers."""

    batch: int  # samples of a batch over all workers

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", whole("batch", self.batch))

    def __str__(self) -> str:
        return "fixed-global"

    def over(self, workers: int) -> int:
        """Samples in a step of so many workers."""
        return self.batch


@dataclass(frozen=True)
class PerWorker:
    """Steps of `batch` samples on each worker.

    The script's rate is meant for `base_workers`, by default `job.size`. `ramp` is the number of samples over which the
    rate goes to its new value, or None for an epoch. `correct_momentum` scales the momentum with the rate.
    """

    batch: int  # samples of a batch on each worker
    base_workers: int | None = None
    ramp: int | None = None
    correct_momentum: bool = True

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
        """Number of workers that the script's rate is meant for."""
        return self.base_workers or 1

    def of_size(self, size: int) -> PerWorker:
        """Return a copy for a script whose rate is for `size` workers. Raises ValueError if `base_workers` differs."""
        if size > 1 and self.base_workers not in (None, size):
            raise ValueError(
                f"base_workers={self.base_workers} and ElasticJob.join(size={size}) differ: both say for how many "
                "workers the script's learning rate is meant, so give only one of them"
            )
        return replace(self, base_workers=self.base_workers or size)

    def over(self, workers: int) -> int:
        """Samples in a step of so many workers."""
        return self.batch * workers

    def rate_factor(self, workers: int) -> float:
        """Factor by which the script's learning rate is multiplied after the ramp."""
        return workers / self.meant_for


Batching = FixedGlobal | PerWorker


@dataclass(frozen=True)
class Ramp:
    """A factor that goes linearly from `start` at sample `since` to `goal`, `length` samples later.

    Samples are counted over all workers since the job began.
    """

    start: float = 1.0  # factor at the ramp's start
    goal: float = 1.0  # factor at the ramp's end
    since: int = 0  # sample at which the ramp starts
    length: int = 0  # in samples

    def factor(self, samples: int) -> float:
        """The factor after `samples` samples."""
        ramp_progress = samples - self.since
        if ramp_progress >= self.length:
            return self.goal
        if ramp_progress <= 0:
            return self.start
        return self.start + (self.goal - self.start) * ramp_progress / self.length

    def towards(self, goal: float, trained_samples: int, ramp_samples: int) -> Ramp:
        """Ramp from the current factor to a new goal, so that the rate never jumps. An equal goal changes nothing."""
        return self if goal == self.goal else Ramp(self.factor(trained_samples), goal, trained_samples, ramp_samples)


@dataclass(frozen=True)
class WorkerRate:
    """State of a trainer's rate and schedule.

    `factor` is the learning rate's factor at the last update, `samples` is the number of trained samples, and `unit` is
    the number of samples that the script's schedule counts as one update.
    """

    unit: int  # samples of one update in the script's schedule
    samples: int = 0  # trained so far
    ramp: Ramp = Ramp()
    factor: float = 1.0  # at the last update

    @property
    def updates(self) -> int:
        """Number of updates for the script's schedule, independent of the number of workers."""
        return -(-self.samples // self.unit)

    def heading_for(self, goal: float, length: int) -> WorkerRate:
        """State whose factor moves to `goal` over the next `length` samples."""
        return replace(self, ramp=self.ramp.towards(goal, self.samples, length))

    def after(self, samples: int) -> WorkerRate:
        """State for the next update, which trains on `samples` samples over all workers."""
        total_samples = self.samples + samples
        return replace(self, samples=total_samples, factor=self.ramp.factor(total_samples))

    @property
    def numbers(self) -> list[float]:
        """The state as numbers, for `of_numbers` on another worker."""
        ramp = self.ramp
        return [self.unit, self.samples, ramp.start, ramp.goal, ramp.since, ramp.length, self.factor]

    @classmethod
    def of_numbers(cls, numbers: Sequence[float]) -> WorkerRate:
        unit, samples, start, goal, since, length, factor = numbers
        return cls(int(unit), int(samples), Ramp(start, goal, int(since), int(length)), factor)
