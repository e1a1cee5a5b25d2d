"""Copy a weight or an optimizer state before the script itself writes to that array, so that a void step can be undone.

A part of a weight, as in `weight[:2] *= 0.5`, is another array over the same memory. So a weight is copied as soon as
the script takes a part of the weight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dyntrain.training.worker.loop.batch.thread_context import thread_context
from dyntrain.training.worker.loop.instrument import Listener

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop


class Writes(Listener):
    """Listener for the script's writes to arrays in one loop, which is used even if all checks are off."""

    def __init__(self, loop: TrainingLoop) -> None:
        self._loop = loop

    def writes(self, array: Any, writer: str = "", to_zero: bool = False) -> None:
        loop = self._loop
        if not loop.owners.is_undoable(array):
            return
        loop.undo.script_writes(array)
        if not thread_context.in_block:
            loop.state.script_sets(array)

    def takes_slice(self, array: Any) -> None:
        self.writes(array)

    def wrote(self, array: Any) -> None:
        self._loop.undo.script_wrote(array)

    def writes_outside_batches(self, array: Any) -> None:
        self._loop.undo.script_sets(array)
