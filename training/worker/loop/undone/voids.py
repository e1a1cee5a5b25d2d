"""Steps that are void repeatedly although no worker was lost. Pure."""

from __future__ import annotations

from dyntrain.training.worker.refused import Unrecoverable

MOST = 3  # times: each lasts until it is detected that no worker makes progress
AGAIN = (
    "step {step} was void {times} times, and no worker is missing: if workers choose their trainer by a condition, "
    "make it of epoch.sum(), which is the same on all"
)


class VoidAgain(RuntimeError, Unrecoverable):
    """Raised on all workers alike."""


class AbortedSteps:
    """Count of void steps at one position.

    A script may step different trainers on different workers. These then wait for each other until they are released,
    and come to the same point again.
    """

    def __init__(self) -> None:
        self._at, self._times = (-1, 0), 0

    def add(self, step: int, workers: int) -> None:
        self._times = self._times + 1 if self._at == (step, workers) else 1
        self._at = step, workers

    def refuse(self, step: int, workers: int) -> None:
        """Raise VoidAgain if the step was void too often with so many workers."""
        if self._times >= MOST and self._at == (step, workers):
            raise VoidAgain(AGAIN.format(step=step, times=self._times))
