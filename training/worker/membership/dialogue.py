"""A worker's side of the dialogue with the coordinator, which may continue over several connections. Pure.

A connection may break between any two messages. After a reconnection, the coordinator repeats orders that may not have
arrived, and the worker repeats its unanswered message. `Dialogue` accepts each order only once, and only at the stage
of the dialogue to which the order belongs.
"""

from __future__ import annotations

from typing import Any

from dyntrain.training.protocol.messages import (
    Abort,
    Broken,
    CheckIn,
    Form,
    Formed,
    Go,
    Leave,
    LoopOver,
    Position,
    Proceed,
    Pump,
    Stage,
    StepVerdict,
)
from dyntrain.training.protocol.wire import FromCoordinator, FromWorker


class Dialogue:
    """A worker's stage in the dialogue with the coordinator, derived from the sent messages and accepted orders."""

    def __init__(self) -> None:
        self.generation: int | None = None  # the last one that this worker was ordered to form
        self.pending: FromWorker | None = None  # the sent message that no order has answered yet
        self._position: Position | None = None
        self._going = self._aborted = self._free = self._left = False
        self._loop = 0  # how many of the script's loops over epochs are over

    @property
    def stage(self) -> Stage:
        if self._free:
            return "free"
        if self._aborted:
            return "aborted"
        match self.pending:
            case CheckIn():
                return "waits"
            case Formed():
                return "formed"
        if self.generation is None:
            return "stands"
        if self._going:
            return "creates" if self._position is None else "trains"
        return "prepares"

    def hello_fields(self) -> dict[str, Any]:
        """Return the fields of the hello message that tell the coordinator this worker's stage in the dialogue."""
        return {
            "generation": self.generation,
            "stage": self.stage,
            "position": self._position,
            "passed": self._loop,
        }

    def sent(self, message: FromWorker) -> None:
        """Store a sent message, which is repeated on each new connection until an order answers the message.

        A message about an earlier generation is not stored, as no order will answer the message.
        """
        if getattr(message, "generation", None) == self.generation:
            self.pending = message

    def accept(self, order: FromCoordinator) -> bool:
        """Update the stage after an order arrived.

        Returns whether the order is new, as a repeated order must be ignored.
        """
        match order:
            case Form(generation=generation):
                return self._accept_form(generation)
            case Go(generation=generation):
                if generation != self.generation or self._going:
                    return False
                self._going, self.pending = True, None
                return True
            case Proceed():
                return self._accept_proceed(order)
            case Abort(generation=generation):
                if generation != self.generation:
                    return False
                self._aborted = True
                if isinstance(self.pending, Broken):
                    self.pending = None
                return True
            case StepVerdict(generation=generation, position=position):
                if generation != self.generation or self._free:
                    return False
                self._free, self._position = True, position
                return True
            case Pump(generation=generation):
                return generation == self.generation
            case LoopOver():
                return self._accept_loop_over(order)
            case Leave():
                had_left, self._left = self._left, True
                self.pending = None
                return not had_left
            case _:
                return True

    def _accept_form(self, generation: int) -> bool:
        if generation <= (self.generation or 0):
            return False
        self.generation, self.pending, self._position = generation, None, None
        self._going = self._aborted = self._free = False
        return True

    def _accept_loop_over(self, order: LoopOver) -> bool:
        if order.loop <= self._loop:
            return False
        self._loop, self.pending = order.loop, None
        self._going = self._aborted = False
        self._free, self._position = order.holds, order.position if order.holds else None
        if not order.holds:
            self.generation = None
        return True

    def _accept_proceed(self, order: Proceed) -> bool:
        if order.generation != self.generation:
            return False
        expected_position = (
            self.pending.position
            if isinstance(self.pending, CheckIn)
            else order.position
            if isinstance(self.pending, Formed)
            else None
        )
        if expected_position != order.position:
            return False
        self.pending, self._position = None, order.position
        return True
