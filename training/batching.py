"""How the batch and the learning rate follow the number of workers. Pure.

`fixed-global`: the batch over all workers stays, so the rate does too; the number of workers does not change the mathematics.
`per-worker`: the batch grows with the workers. The rate then grows in proportion (the linear scaling rule of Goyal et al., arXiv 1706.02677),
not at once but over a ramp, because the momentum still remembers gradients of the old batch (Lin et al., Dynamic Mini-batch SGD,
arXiv 1904.12043). An optimizer that keeps the rate inside its momentum buffer, as MXNet's SGD does (v = m v + rate * gradient), must have the buffer
scaled by the ratio of the rates whenever the rate changes (momentum correction, section 3 of arXiv 1706.02677).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Batching(Enum):
    FIXED_GLOBAL = "fixed-global"
    PER_WORKER = "per-worker"


@dataclass(frozen=True)
class Ramp:
    """The factor on the base rate goes from `start` at sample `since` linearly to `goal`, `length` samples later. Samples are over all workers."""

    start: float
    goal: float
    since: int
    length: int

    def __post_init__(self) -> None:
        if self.start <= 0 or self.goal <= 0:
            raise ValueError(f"factors must be positive, not {self.start} and {self.goal}")
        if self.length < 0:
            raise ValueError(f"a ramp of {self.length} samples: must not be negative")

    def factor(self, samples: int) -> float:
        """The factor when `samples` have been trained on."""
        done = samples - self.since
        if done >= self.length:
            return self.goal
        if done <= 0:
            return self.start
        return self.start + (self.goal - self.start) * done / self.length

    def towards(self, goal: float, samples: int, length: int) -> Ramp:
        """A change of the goal starts where the factor is now, also in the middle of a ramp: the rate never jumps. An equal goal changes nothing."""
        return self if goal == self.goal else Ramp(self.factor(samples), goal, samples, length)


def steady(factor: float = 1.0) -> Ramp:
    return Ramp(factor, factor, 0, 0)


def global_batch(batching: Batching, batch: int, workers: int) -> int:
    """The batch over all workers: `batch` is that of all of them in `fixed-global` and of each in `per-worker`."""
    if batch < 1 or workers < 1:
        raise ValueError(f"batch ({batch}) and workers ({workers}) must be at least 1")
    return batch if batching is Batching.FIXED_GLOBAL else batch * workers


def rate_goal(batching: Batching, workers: int, base_workers: int = 1) -> float:
    """The factor that the base rate, tuned for `base_workers`, is to reach."""
    if workers < 1 or base_workers < 1:
        raise ValueError(f"workers ({workers}) and base_workers ({base_workers}) must be at least 1")
    return 1.0 if batching is Batching.FIXED_GLOBAL else workers / base_workers


def momentum_scale(before: float, after: float) -> float:
    """What a momentum buffer that holds the rate inside is multiplied by when the rate goes from `before` to `after`."""
    if before <= 0:
        raise ValueError(f"a rate of {before} has no momentum that could be carried over")
    return after / before
