"""How the batch and the learning rate follow the number of workers. Pure.

`FixedGlobal`: the batch over all workers stays, so the rate does too: the number of workers does not change the
mathematics. `PerWorker`: the batch grows with the workers, and the rate in proportion to it (the linear scaling rule of
Goyal et al., arXiv 1706.02677). Not at once: momentum still holds the noise of the small batch, so the rate takes a
ramp (Lin et al., Dynamic Mini-batch SGD, arXiv 1904.12043). MXNet's SGD keeps the rate inside its buffer (v = m v -
rate * gradient), where a new rate reaches old gradients only if the buffer is scaled by the ratio of the rates: the
momentum correction of Goyal et al., section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dyntrain.training.sampling.whole import whole


@dataclass(frozen=True)
class FixedGlobal:
    """Steps of `batch` samples over all workers."""

    batch: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", whole("batch", self.batch))

    def __str__(self) -> str:
        return "fixed-global"

    def over(self, workers: int) -> int:
        """Samples in a step of so many workers."""
        return self.batch


@dataclass(frozen=True)
class PerWorker:
    """Steps of `batch` samples on each worker; the script's rate is meant for `base_workers`, or else for as many as
    `job.size` says.

    `ramp`: samples over which the rate goes to its new value, None for an epoch's worth. `correct_momentum`: scale the
    momentum with the rate.
    """

    batch: int
    base_workers: int | None = None
    ramp: int | None = None
    correct_momentum: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", whole("batch", self.batch))
        for name, least in (("base_workers", 1), ("ramp", 0)):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, whole(name, value, least))

    def __str__(self) -> str:
        ramp = "an epoch" if self.ramp is None else f"{self.ramp} samples"
        momentum = "scaled" if self.correct_momentum else "left"
        return f"per-worker (rate for {self.meant_for}, ramp over {ramp}, momentum {momentum})"

    @property
    def meant_for(self) -> int:
        """Workers that the script's rate is right for."""
        return self.base_workers or 1

    def of_size(self, size: int) -> PerWorker:
        """For a script whose numbers are for `size` workers. Raises ValueError where `base_workers` says otherwise."""
        if size > 1 and self.base_workers not in (None, size):
            raise ValueError(
                f"base_workers={self.base_workers} beside ElasticJob.join(size={size}): both say for how many workers "
                "the script's rate is, so give one of them"
            )
        return replace(self, base_workers=self.base_workers or size)

    def over(self, workers: int) -> int:
        """Samples in a step of so many workers."""
        return self.batch * workers

    def rate_factor(self, workers: int) -> float:
        """What the script's rate is multiplied by in the end."""
        return workers / self.meant_for


Batching = FixedGlobal | PerWorker


@dataclass(frozen=True)
class Ramp:
    """The factor goes from `start` at sample `since` linearly to `goal`, `length` samples later. Samples are over all
    workers since the job began.
    """

    start: float = 1.0
    goal: float = 1.0
    since: int = 0
    length: int = 0

    def factor(self, samples: int) -> float:
        """The factor when `samples` have been trained on."""
        done = samples - self.since
        if done >= self.length:
            return self.goal
        if done <= 0:
            return self.start
        return self.start + (self.goal - self.start) * done / self.length

    def towards(self, goal: float, samples: int, length: int) -> Ramp:
        """A new goal starts where the factor is now, also in the middle of a ramp, so the rate never jumps. An equal
        goal changes nothing.
        """
        return self if goal == self.goal else Ramp(self.factor(samples), goal, samples, length)


@dataclass(frozen=True)
class WorkerRate:
    """What a trainer's rate is multiplied by at its next update, and how far its schedule is. `unit`: samples of one
    update that the script's schedule counts; `samples` were taken so far; `factor` is that of the last update.
    """

    unit: int
    samples: int = 0
    ramp: Ramp = Ramp()
    factor: float = 1.0

    @property
    def updates(self) -> int:
        """What the script's schedule is asked with, however many workers made them."""
        return -(-self.samples // self.unit)

    def heading_for(self, goal: float, length: int) -> WorkerRate:
        """From here on to `goal` times the rate, over `length` samples."""
        return replace(self, ramp=self.ramp.towards(goal, self.samples, length))

    def after(self, samples: int) -> WorkerRate:
        """For the update that takes so many samples over all workers."""
        taken = self.samples + samples
        return replace(self, samples=taken, factor=self.ramp.factor(taken))

    @property
    def numbers(self) -> list[float]:
        """For `of_numbers`, on another worker."""
        ramp = self.ramp
        return [self.unit, self.samples, ramp.start, ramp.goal, ramp.since, ramp.length, self.factor]

    @classmethod
    def of_numbers(cls, numbers: Sequence[float]) -> WorkerRate:
        unit, samples, start, goal, since, length, factor = numbers
        return cls(int(unit), int(samples), Ramp(start, goal, int(since), int(length)), factor)
