"""One training step that can be voided while the training thread is blocked inside ps-lite: the worker's side of the release protocol.

The training thread runs `run`; the control thread answers `abort`, `pump` and `verdict` meanwhile (MXNet's calls let go of the GIL).
See `training.release` for the protocol and why it works.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip

from training.engine import Engine
from training.protocol import Abort, Position, Pump, Pumped, StepStatus, Verdict
from training.wire import FromWorker

ROUND_SECONDS = 0.1  # without an answer for so long, the zeros that are still unanswered are pushed once more


class StepGuard:
    """`say` sends to the coordinator."""

    def __init__(self, engine: Engine, say: Callable[[FromWorker], None]) -> None:
        self._engine, self._say = engine, say
        self._changed = threading.Condition()
        self._generation = 0
        self._phase: Literal["out", "issue", "wait", "held"] = "out"
        self._answered = self._last = 0
        self._applied = Position(epoch=0, offset=0, step=0)
        self._verdict: Verdict | None = None
        self.aborted = False

    def formed(self, generation: int, position: Position) -> None:
        with self._changed:
            self._generation, self._applied, self._phase = generation, position, "out"
            self.aborted, self._verdict = False, None

    def stands(self, position: Position) -> None:
        """At a boundary, where a position may have another name than after the last step: a verdict must not lead back over it."""
        with self._changed:
            self._applied = position

    def run(self, after: Position, push: Callable[[], None], gradients: Sequence[Any], update: Callable[[], None], first: int = 0) -> bool:
        """Push, wait for the sums, update; `after` is the position then. False: the step is void or was not begun, and a new generation follows.

        What is pushed are the engine's keys from number `first` on, as many as there are `gradients`.

        True does not say that no new generation follows: look at `aborted`. The coordinator bounds the waits: it ends the process.
        """
        with self._changed:
            if self.aborted:
                return False
            self._phase, self._answered, self._last = "issue", first, first + len(gradients)
        push()
        self._enter("wait")
        for number, gradient in enumerate(gradients):
            gradient.wait_to_read()
            self._answered = first + number + 1
        with self._changed:
            if self.aborted:
                self._phase = "held"
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._verdict is not None)
                assert self._verdict is not None
                if self._verdict.position.step < after.step:
                    self._phase = "out"
                    return False
            update()  # under the lock: an abort finds the step either applied or not
            self._phase, self._applied = "out", after
            return True

    def _enter(self, phase: Literal["wait"]) -> None:
        with self._changed:
            self._phase = phase
            self._changed.notify_all()

    # ---- the control thread

    def handle(self, order: Abort | Pump | Verdict) -> None:
        """What is of another generation is old and void."""
        if order.generation != self._generation:
            return
        match order:
            case Abort():
                with self._changed:
                    self.aborted = True
                    self._changed.wait_for(lambda: self._phase != "issue")  # issuing only queues work: it ends by itself
                    assert self._phase != "issue"
                    status = StepStatus(generation=self._generation, phase=self._phase, position=self._applied, answered=self._answered)
                self._say(status)
            case Pump():
                threading.Thread(target=self._pump, args=(order,), name="pump", daemon=True).start()
            case Verdict():
                with self._changed:
                    self._verdict = order
                    self._changed.notify_all()

    def _pump(self, order: Pump) -> None:
        began, rounds = time.monotonic(), 0
        zeros = _Zeros(self._engine, order.first, self._last)
        while todo := zeros.unanswered():
            rounds += 1
            zeros.push(todo)
            zeros.wait_while_answers_come(ROUND_SECONDS)
        zeros.let_go()
        self._say(Pumped(generation=order.generation, rounds=rounds, seconds=time.monotonic() - began))


class _Zeros:
    """Zeros pushed for keys, and which of them are answered. `pushpull`, never `push`: after one pushpull a plain push is not answered."""

    def __init__(self, engine: Engine, first: int, last: int) -> None:
        self._store = engine.kvstore
        self._open = dict.fromkeys(self._store.parts_between(first, last), 0)
        self._pushed = False
        self._answers = 0
        self._changed = threading.Condition()

    def unanswered(self) -> list[Any]:
        with self._changed:
            return [part for part, count in self._open.items() if count] if self._pushed else list(self._open)

    def push(self, parts: list[Any]) -> None:
        self._pushed = True
        for part in parts:
            zeros = mx.nd.zeros((part.length,), dtype=part.dtype)
            zeros.wait_to_read()
            with self._changed:
                self._open[part] += 1
            self._store.pushpull_part(part, zeros)
            threading.Thread(target=self._await, args=(part, zeros), daemon=True).start()

    def let_go(self) -> None:
        """A reference to the store that outlives the release would keep the broken group alive."""
        del self._store

    def _await(self, part: Any, zeros: Any) -> None:
        zeros.wait_to_read()
        with self._changed:
            self._open[part] -= 1
            self._answers += 1
            self._changed.notify_all()

    def wait_while_answers_come(self, seconds: float) -> None:
        """Until all are answered, or none was for `seconds`."""
        with self._changed:
            while any(self._open.values()):
                seen = self._answers
                if not self._changed.wait_for(lambda seen=seen: self._answers != seen, seconds):  # type: ignore[misc]
                    return
