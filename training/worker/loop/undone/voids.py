"""Detect steps that are void repeatedly although no worker was lost. Pure."""

from __future__ import annotations

from dyntrain.training.worker.refused import Unrecoverable

MOST_VOIDS = 3  # most void steps at one position; each lasts until the workers are seen to make no progress
VOID_AGAIN_ERROR = (
    "step {step} was void {times} times, and no worker is missing: if a condition chooses the trainer that steps, "
    "compute it from epoch.sum(), which is equal on all workers"
)


class StepVoidTooOften(RuntimeError, Unrecoverable):
    """The same step was void too often; all workers raise this error."""


class VoidSteps:
    """Count of void steps at one position.

    A script may step different trainers on different workers. Workers that step different trainers wait for each other
    until the coordinator makes the step void, and then repeat the step.
    """

    def __init__(self) -> None:
        self._at, self._times = (-1, 0), 0

    def add(self, step: int, workers: int) -> None:
        self._times = self._times + 1 if self._at == (step, workers) else 1
        self._at = step, workers

    def refuse(self, step: int, workers: int) -> None:
        """Raise StepVoidTooOften if the step was void too often with this number of workers."""
        if self._times >= MOST_VOIDS and self._at == (step, workers):
            raise StepVoidTooOften(VOID_AGAIN_ERROR.format(step=step, times=self._times))
