"""One training step that can be voided while the training thread is blocked inside ps-lite: the worker's side of the
release protocol.

The training thread runs `run`; the control thread answers `abort`, `pump` and `verdict` meanwhile (MXNet's calls let go
of the GIL). See `dyntrain.training.session.generation.release` for the protocol and why it works.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Literal

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.engine import Engine, SumsLost
from dyntrain.training.protocol.messages import (
    Abort,
    Broken,
    Position,
    Pump,
    Pumped,
    StepStatus,
    StepVerdict,
    Where,
    Whereabouts,
)
from dyntrain.training.protocol.wire import FromWorker
from dyntrain.training.worker.membership.window import Key, share_of, windows_of
from dyntrain.training.worker.membership.zeros import Zeros

# Of so many steps one is measured. It forgoes the overlap of its pushes with its backward pass, and all wait for it: so
# all workers measure the same one.
OWN_STEPS = 32
OWN_MEASURED = 15
# Where an answer should have come, and did not for so long, a zero is pushed once more. It follows the links' speed.
ROUND_SECONDS, LONGEST_ROUND_SECONDS = 0.2, 2.0
LOOK_SECONDS = 0.005  # between two looks for answers that are on their way


class StepGuard:
    """`say` sends to the coordinator."""

    def __init__(self, engine: Engine, say: Callable[[FromWorker], None]) -> None:
        self._engine, self._say = engine, say
        self._changed = threading.Condition()
        self._pumping = threading.Lock()
        self._questions = 0  # how often, where it is
        self._generation = 0
        self._phase: Literal["out", "issue", "wait", "held", "failed"] = "out"
        self._answered = 0
        self._exchanges = 0  # of this generation that have come to their end
        self._numbers: Sequence[int] = ()  # of the keys that are pushed
        self._arrays: Sequence[Any] = ()
        self._wait_for_push: Callable[[], None] = lambda: None  # waits until they are pushed
        self._zeros: Zeros | None = None  # of this generation, from the first that was pushed
        self._applied = Position(epoch=0, offset=0, step=0)
        self._verdict: StepVerdict | None = None
        self.aborted = False
        self._own_seconds: deque[float] = deque(maxlen=OWN_MEASURED)
        self._summed: float | None = None  # when the sums of the exchange before were there
        self._measured: int | None = None  # which so many steps have theirs
        self._exchange_seconds = 0.0  # of the last one

    def formed(self, generation: int, position: Position) -> None:
        with self._changed:
            self._generation, self._applied, self._phase = generation, position, "out"
            self.aborted, self._verdict, self._exchanges, self._zeros = False, None, 0, None
        self._summed = None

    @property
    def own_seconds(self) -> float | None:
        """Seconds of a step that are this worker's own work, without waiting for others: the median of the last few
        measurements, since one step alone may have shared its processor. None: not measured yet.
        """
        return median(self._own_seconds) if self._own_seconds else None

    @property
    def position(self) -> Position:
        """After the last step that was applied."""
        return self._applied

    def stands(self, position: Position) -> None:
        """At a boundary, where a position may have another name than after the last step: a verdict must not lead back
        over it.
        """
        with self._changed:
            self._applied = position
        self._summed = None  # what is waited for at a boundary is not this worker's work

    def run(
        self,
        after: Position,
        push: Callable[[], None],
        arrays: Sequence[Any],
        update: Callable[[], None],
        first: int = 0,
    ) -> bool:
        """`exchange` and `apply` in one, of the keys from number `first` on, as many as there are `arrays`."""
        numbers = range(first, first + len(arrays))
        return self.exchange(numbers, push, arrays) and self.apply(after, update)

    def exchange(
        self, numbers: Sequence[int], push: Callable[[], None], arrays: Sequence[Any], aside: bool = False
    ) -> bool:
        """Push, and wait for the sums: `arrays`, one for each of the engine's keys `numbers` (ascending). False: it was
        not begun, or the sums are lost; a new generation follows. `aside`: these are not a step's gradients, and are no
        measure of how long those take.

        After True the sums may be void all the same: `apply` knows. The coordinator bounds the waits: it ends the
        process.
        """
        if not aside:
            self._measure(arrays)
        with self._changed:
            if self.aborted:
                return False
            self._numbers, self._answered = numbers, numbers[0] if len(numbers) else 0
            self._arrays, self._phase = arrays, "issue"
        began = time.monotonic()
        if len(arrays):
            self._wait_for_push = self._engine.begin(arrays[0])  # of the first layer, whose gradient comes last
        push()
        self._enter("wait")
        lost: SumsLost | None = None
        for number, array in zip(numbers, arrays, strict=True):
            try:
                self._engine.wait(array)
            except SumsLost as error:  # the others must not be in flight any more, either
                lost = lost or error
                continue
            with self._changed:
                self._answered = number + 1
                self._changed.notify_all()
        if lost is not None:
            self._fail(lost)
            return False
        with self._changed:
            self._exchanges += 1
        self._enter("held")
        ended = time.monotonic()
        if not aside:
            self._summed, self._exchange_seconds = ended, ended - began
        elif self._summed is not None:
            self._summed += ended - began  # which was spent in waiting for others
        return True

    def _fail(self, lost: SumsLost) -> None:
        """Until the verdict is there. Whatever it is, this worker stands where it stood before the step."""
        self._enter("failed")
        with self._changed:
            aborted = self.aborted
        if not aborted:
            self._say(Broken(generation=self._generation, reason=str(lost)[:2000]))
        with self._changed:
            self._changed.wait_for(lambda: self._verdict is not None)
            self.aborted, self._phase = True, "out"

    def _measure(self, gradients: Sequence[Any]) -> None:
        """Now and then: from the last sums to this worker's own gradients, which no other worker has a part in. The
        first step that can be: none is that follows a boundary or a formation, on any worker.
        """
        began, which = self._summed, self._applied.step // OWN_STEPS
        if began is None or which == self._measured:
            return
        for gradient in gradients:
            gradient.wait_to_read()
        self._measured = which
        self._own_seconds.append(time.monotonic() - began)

    def apply(self, after: Position, update: Callable[[], None], reaches: bool = True) -> bool:
        """Update with the sums of the exchange. False: they are void, and a new generation follows.

        `after` is the position once the whole step is applied. `reaches`: this update does that; otherwise more
        exchanges belong to the step, and `reach` ends it.

        True does not say that no new generation follows: look at `aborted`.
        """
        with self._changed:
            if self.aborted and not self._stands_at_least_at(after):
                return False
            try:
                update()  # under the lock: an abort finds the step either applied or not
            finally:
                self._phase = "out"
            if reaches:
                self._applied = after
            return True

    def reach(self, after: Position) -> bool:
        """The step's updates are all made. False: it is void, and what they changed must be taken back."""
        with self._changed:
            if self.aborted and not self._stands_at_least_at(after):
                return False
            self._applied = after
            return True

    def all_have_it(self, again: Callable[[], bool]) -> bool:
        """Whether the sums of the last exchange came to every survivor: only then may a script decide by them. With
        ps-lite they come to all or to none.

        `again` makes one more exchange: its end says that all had come to it. Where it fails the verdict tells how far
        every one of them had come. The others do the same, and find the same.
        """
        if self._engine.release == "zeros":
            return True
        had = self._exchanges
        if again():
            return True
        with self._changed:
            self._changed.wait_for(lambda: self._verdict is not None)
            assert self._verdict is not None
            return self._verdict.exchanges >= had

    def _stands_at_least_at(self, after: Position) -> bool:
        self._phase = "held"
        self._changed.notify_all()
        self._changed.wait_for(lambda: self._verdict is not None)
        assert self._verdict is not None
        self._phase = "out"
        return self._verdict.position.step >= after.step

    def _enter(self, phase: Literal["wait", "held", "failed"]) -> None:
        with self._changed:
            self._phase = phase
            self._changed.notify_all()

    # ---- the control thread

    def handle(self, order: Abort | Pump | StepVerdict | Where) -> None:
        """What is of another generation is old and void."""
        if order.generation != self._generation:
            return
        match order:
            case Abort():
                with self._changed:
                    self.aborted = True
                    # issuing only queues work: it ends by itself
                    self._changed.wait_for(lambda: self._phase != "issue")
                    if self._engine.release == "error":
                        self._engine.break_off()
                        self._changed.wait_for(lambda: self._phase != "wait")
                    self._questions += 1
                    question, at_once = self._questions, self._phase != "wait" and not self._pumping.locked()
                if at_once:
                    self._say_where(order)
                else:  # its own gradients are waited for, or zeros
                    self._beside("abort", lambda: self._say_where_once_pushed(order, question))
            case Where():  # without the lock, under which an update may take its time
                inside, at = self._phase != "out", self._applied
                self._say(Whereabouts(generation=order.generation, waits=inside, position=at))
            case Pump():
                question = self._questions
                self._beside("pump", lambda: self._pump(order, question))
            case StepVerdict():
                with self._changed:
                    self._verdict = order
                    self._changed.notify_all()

    def _beside(self, name: str, work: Callable[[], None]) -> None:
        """One after the other, and nothing that a later question has made void: what it may touch can be gone."""
        threading.Thread(target=work, name=name, daemon=True).start()

    def _say_where_once_pushed(self, order: Abort, question: int) -> None:
        with self._pumping:
            if question != self._questions:
                return
            keys, windows = tuple(self._waited_for(order.generation)), 1
            if keys:
                self._wait_for_push()
                self._engine.kvstore.flush()
                self._engine.kvstore.flush()  # of what was pushed upon answers that were there by then
                windows = len(windows_of(self._keys(keys)))
        if question == self._questions:
            self._say_where(order, keys, windows)

    def _say_where(self, order: Abort, keys: tuple[int, ...] = (), windows: int = 1) -> None:
        with self._changed:
            if order.generation != self._generation:
                return
            assert self._phase != "issue"
            status = StepStatus(
                generation=order.generation,
                phase=self._phase,
                position=self._applied,
                answered=self._answered,
                exchanges=self._exchanges,
                keys=keys,
                windows=windows,
            )
        self._say(status)

    def _pump(self, order: Pump, question: int) -> None:
        """A part of the zeros that free those who wait; `Zeros` says which."""
        with self._pumping:
            if question != self._questions or order.generation != self._generation:
                return
            began, rounds, store = time.monotonic(), 0, self._engine.kvstore
            zeros = self._zeros = self._zeros or Zeros(store)
            keys = self._keys(order.keys or tuple(self._waited_for(order.generation)))
            if order.window is not None:
                keys = windows_of(keys)[order.window]
            if order.fills:
                zeros.fill(keys)
            else:
                mine = share_of(keys, order.share, order.shares)
                arrays = self._waited_for(order.generation)
                watches = {key.number: store.watch(arrays[key.number]) for key in mine if key.number in arrays}

                def has(key: Key, part: Any) -> bool:
                    waits = key.number in watches and not watches[key.number]()
                    return not waits or (len(key.parts) > 1 and store.has(part))

                patience = int(self._round_seconds() / LOOK_SECONDS)
                rounds = zeros.mend(mine, order.count, order.workers, has, lambda: time.sleep(LOOK_SECONDS), patience)
        done = Pumped(generation=order.generation, number=order.number, rounds=rounds, seconds=time.monotonic() - began)
        self._say(done)

    def _keys(self, numbers: Sequence[int]) -> list[Key]:
        return [Key(number, tuple(self._engine.kvstore.parts_of([number]))) for number in numbers]

    def _waited_for(self, generation: int) -> dict[int, Any]:
        """The array of each key's number; none where this worker does not wait."""
        with self._changed:
            waits = self._phase == "wait" and self._generation == generation
            return dict(zip(self._numbers, self._arrays, strict=True)) if waits else {}

    def _round_seconds(self) -> float:
        """How long what is on its way may take, by what the last exchange took: on slow links, or for many workers,
        zeros that are pushed again too soon would only be in the way.
        """
        return min(max(ROUND_SECONDS, 2 * self._exchange_seconds), LONGEST_ROUND_SECONDS)
