"""Collect copies of the state during a step, and restore the copies if the step is void."""

from __future__ import annotations

from typing import Any

from dyntrain.training.worker.loop.batch.current_batch import forget_gradients
from dyntrain.training.worker.loop.batch.thread_context import thread_context
from dyntrain.training.worker.loop.undone.forward_writes import ForwardWrites
from dyntrain.training.worker.loop.undone.rollback import Backup, Overwritten, StepSnapshot
from dyntrain.training.worker.state.memory import Memories
from dyntrain.training.worker.state.training_state import TrainingState


class Undo:
    """Copies from which a void step restores the state at the last `mark`.

    `memories`: the script's values in job.memory.
    """

    def __init__(self, state: TrainingState, memories: Memories) -> None:
        self.forwards = ForwardWrites()
        self._state, self._memories = state, memories
        self._mark: StepSnapshot | None = None
        self._set_since: set[Any] = set()  # parameters that the script has set since the mark
        self._steps: list[Backup | Overwritten] = []  # since the mark, in order of time

    def mark(self) -> None:
        """Make the present state the one to which a void step returns."""
        self._memories.keep(self._state.own)
        self._mark = StepSnapshot(self._state)
        self._set_since.clear()

    def back_up(self, trainer: Any) -> None:
        """Copy the trainer before its update, because another trainer's update may make the step void."""
        self._steps.append(Backup.of(trainer))

    def script_writes(self, array: Any) -> None:
        """Copy a weight or an optimizer's state before the script writes to it, or takes a part of it as an array.

        Later writes to such a part cannot be detected.
        """
        if not any(isinstance(step_copy, Overwritten) and step_copy.array is array for step_copy in self._steps):
            self._steps.append(Overwritten(array, array.copy()))
        if not thread_context.in_block:
            self.forwards.script_writes(array)

    def script_sets(self, array: Any) -> None:
        """Record a parameter that the script sets between batches, so that the epoch's end does not restore it."""
        self._set_since.update(
            param for param in self._state.written if any(array is device_array for device_array in param.list_data())
        )

    def script_wrote(self, array: Any) -> None:
        """Record the new values of `array` if the array is a weight."""
        if not thread_context.in_block:
            self.forwards.script_wrote(array)

    def drop_copies(self) -> None:
        """Drop the copies, because the updates since the mark are final."""
        self._steps.clear()

    def recall(self) -> None:
        """Restore the script's memory and kept arrays, so that what it counts in a step counts once."""
        self._memories.recall(self._state.own)
        if self._mark is not None:
            self._mark.put_back(self._state)
        self.forwards.put_back()

    def put_back_written(self) -> None:
        """Restore the parameters that forward passes outside of the steps have written."""
        if self._mark is not None:
            self._mark.put_back_written(excluded=self._set_since)

    def restore_state(self) -> None:
        for step_copy in reversed(self._steps):
            step_copy.restore_state(self._state)
        self._steps.clear()
        assert self._mark is not None
        self._mark.restore_state(self._state)
        for trainer in self._state.trainers:
            forget_gradients(trainer)
        self.forwards.put_back()
