"""Collect copies of the state during a step, and restore the copies if the step is void."""

from __future__ import annotations

from typing import Any

from dyntrain.training.worker.loop.batch.current_batch import forget_gradients
from dyntrain.training.worker.loop.batch.thread_context import thread_context
from dyntrain.training.worker.loop.undone.forward_writes import ForwardWrites
from dyntrain.training.worker.loop.undone.rollback import OverwrittenArray, StepSnapshot, TrainerBackup
from dyntrain.training.worker.state.memory import Memories
from dyntrain.training.worker.state.training_state import TrainingState


class Undo:
    """Copies from which a void step restores the state at the last `mark_state`.

    `memories`: the values that the script keeps in job.memory.
    """

    def __init__(self, state: TrainingState, memories: Memories) -> None:
        self.forwards = ForwardWrites()
        self._state, self._memories = state, memories
        self._mark: StepSnapshot | None = None
        self._set_since: set[Any] = set()  # parameters that the script has set since the mark
        self._steps: list[TrainerBackup | OverwrittenArray] = []  # since the mark, in order of time

    def mark_state(self) -> None:
        """Make the present training state the state that is restored if a later step is void."""
        self._memories.keep(self._state.own)
        self._mark = StepSnapshot(self._state)
        self._set_since.clear()

    def back_up(self, trainer: Any) -> None:
        """Copy the trainer before its update, because the step may become void after the update, if there are several
        trainers.
        """
        self._steps.append(TrainerBackup.of(trainer))

    def script_writes(self, array: Any) -> None:
        """Copy `array`, a weight or an optimizer state, before the script writes to it or takes a part of it as an
        array.

        Writes to an array that is a part of another array cannot be detected.
        """
        if not any(isinstance(step_copy, OverwrittenArray) and step_copy.array is array for step_copy in self._steps):
            self._steps.append(OverwrittenArray(array, array.copy()))
        if not thread_context.in_block:
            self.forwards.script_writes(array)

    def script_sets(self, array: Any) -> None:
        """Record that the script itself has set a parameter, so that the epoch's end does not restore the parameter."""
        self._set_since.update(
            param for param in self._state.written if any(array is device_array for device_array in param.list_data())
        )

    def script_wrote(self, array: Any) -> None:
        """Record the values that the script wrote to `array`, to detect later changes by forward passes."""
        if not thread_context.in_block:
            self.forwards.script_wrote(array)

    def drop_copies(self) -> None:
        """Drop the copies made since the last `mark_state`, because the updates since that mark are final."""
        self._steps.clear()

    def recall_memories(self) -> None:
        """Restore job.memory and the arrays that the script keeps, so that lines of the script that run again count a
        step only once.
        """
        self._memories.recall(self._state.own)
        if self._mark is not None:
            self._mark.put_back(self._state)
        self.forwards.put_back()

    def put_back_parameters(self) -> None:
        """Restore the parameters that forward passes change to their values from after the last step."""
        if self._mark is not None:
            self._mark.put_back_parameters(excluded=self._set_since)

    def restore_state(self) -> None:
        for step_copy in reversed(self._steps):
            step_copy.restore_state(self._state)
        self._steps.clear()
        assert self._mark is not None
        self._mark.restore_state(self._state)
        for trainer in self._state.trainers:
            forget_gradients(trainer)
        self.forwards.put_back()
