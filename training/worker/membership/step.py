"""The worker's side of the release protocol: a step can be voided while the training thread is blocked in ps-lite.

The training thread calls `run`. While `run` is blocked, the control thread handles the orders `Abort`, `Pump` and
`StepVerdict` (MXNet's calls release the GIL). The module `dyntrain.training.session.generation.release` explains the
protocol.
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

# One of so many steps is measured. In that step, pushes do not overlap with the backward pass, which delays all
# workers. So all workers measure the same step.
STEPS_PER_MEASUREMENT = 32
MEASUREMENTS_KEPT = 15
# When an answer is overdue by so many seconds, another zero is pushed. The time adapts to the speed of the links.
ROUND_SECONDS, LONGEST_ROUND_SECONDS = 0.2, 2.0  # least and most seconds until an answer is overdue
LOOK_SECONDS = 0.005  # between two checks for answers in flight


class StepGuard:
    """Runs a step's exchange and update such that an abort voids the whole step or nothing.

    The function `say` sends a message to the coordinator.
    """

    def __init__(self, engine: Engine, say: Callable[[FromWorker], None]) -> None:
        self._engine, self._say = engine, say
        self._changed = threading.Condition()
        self._pumping = threading.Lock()
        self._questions = 0  # how many aborts have asked for this worker's status
        self._generation = 0
        self._phase: Literal["out", "issue", "wait", "held", "failed"] = "out"
        self._answered = 0
        self._exchanges = 0  # completed exchanges of this generation
        self._numbers: Sequence[int] = ()  # of the keys that are pushed
        self._arrays: Sequence[Any] = ()
        self._wait_for_push: Callable[[], None] = lambda: None  # waits until the arrays are pushed
        self._zeros: Zeros | None = None  # this generation's zeros, created at their first push
        self._applied = Position(epoch=0, offset=0, step=0)
        self._verdict: StepVerdict | None = None
        self.aborted = False
        self._own_seconds: deque[float] = deque(maxlen=MEASUREMENTS_KEPT)
        self._summed: float | None = None  # time when the sums of the previous exchange had arrived
        self._measured: int | None = None  # the last group of STEPS_PER_MEASUREMENT steps with a measurement
        self._exchange_seconds = 0.0  # of the last exchange of gradients

    def formed(self, generation: int, position: Position) -> None:
        with self._changed:
            self._generation, self._applied, self._phase = generation, position, "out"
            self.aborted, self._verdict, self._exchanges, self._zeros = False, None, 0, None
        self._summed = None

    @property
    def own_seconds(self) -> float | None:
        """The seconds of this worker's own work in a step, without waiting for other workers.

        Before the first measurement, `own_seconds` is None.

        The value is the median of the last few measurements, as other programs may have slowed down a single step.
        """
        return median(self._own_seconds) if self._own_seconds else None

    @property
    def position(self) -> Position:
        """The position after the last step that was applied."""
        return self._applied

    def set_position(self, position: Position) -> None:
        """Set the position after an epoch or segment.

        The position may differ from the position after the last step, for example when an epoch starts.

        The coordinator's verdict on a step never sets this worker back into an earlier epoch or segment.
        """
        with self._changed:
            self._applied = position
        self._summed = None  # waiting at a boundary is not this worker's own work

    def run(
        self,
        after: Position,
        push: Callable[[], None],
        arrays: Sequence[Any],
        update: Callable[[], None],
        first: int = 0,
    ) -> bool:
        """Call `exchange` and then `apply` for `arrays`, whose keys are numbered from `first` on."""
        key_numbers = range(first, first + len(arrays))
        return self.exchange(key_numbers, push, arrays) and self.apply(after, update)

    def exchange(
        self, key_numbers: Sequence[int], push: Callable[[], None], arrays: Sequence[Any], aside: bool = False
    ) -> bool:
        """Push `arrays`, one for each of the engine's keys `key_numbers` (ascending), and wait for the arrays' sums.

        Returns False if the exchange was not begun or the sums are lost, and then a new generation must be formed.
        If the result is True, the sums may still be void, which `apply` finds out. `aside` says that the arrays are not
        a step's gradients, so the time of the exchange is not measured. If the wait for the sums takes too long, the
        coordinator ends this process.
        """
        if not aside:
            self._measure_own_time(arrays)
        with self._changed:
            if self.aborted:
                return False
            self._numbers, self._answered = key_numbers, key_numbers[0] if len(key_numbers) else 0
            self._arrays, self._phase = arrays, "issue"
        began_at = time.monotonic()
        if len(arrays):
            self._wait_for_push = self._engine.begin_push(arrays[0])  # the first layer's, which is computed last
        push()
        self._enter_phase("wait")
        lost_error: SumsLost | None = None
        for key_number, array in zip(key_numbers, arrays, strict=True):
            try:
                self._engine.wait(array)
            except SumsLost as error:  # wait for the remaining arrays too, as none may stay in flight
                lost_error = lost_error or error
                continue
            with self._changed:
                self._answered = key_number + 1
                self._changed.notify_all()
        if lost_error is not None:
            self._report_lost_sums(lost_error)
            return False
        with self._changed:
            self._exchanges += 1
        self._enter_phase("held")
        ended_at = time.monotonic()
        if not aside:
            self._summed, self._exchange_seconds = ended_at, ended_at - began_at
        elif self._summed is not None:
            self._summed += ended_at - began_at  # time spent waiting for other workers
        return True

    def _report_lost_sums(self, lost_error: SumsLost) -> None:
        """Report to the coordinator that sums are lost, and wait for its verdict on the step.

        Independently of the verdict, this worker's position stays the position before the step.
        """
        self._enter_phase("failed")
        with self._changed:
            was_aborted = self.aborted
        if not was_aborted:
            self._say(Broken(generation=self._generation, reason=str(lost_error)[:2000]))
        with self._changed:
            self._changed.wait_for(lambda: self._verdict is not None)
            self.aborted, self._phase = True, "out"

    def _measure_own_time(self, gradients: Sequence[Any]) -> None:
        """Measure the seconds from the last sums to this worker's own gradients, once in `STEPS_PER_MEASUREMENT` steps.

        The measured time does not depend on other workers. No worker measures the first step of an epoch, segment or
        generation.
        """
        began_at, step_group = self._summed, self._applied.step // STEPS_PER_MEASUREMENT
        if began_at is None or step_group == self._measured:
            return
        for gradient in gradients:
            gradient.wait_to_read()
        self._measured = step_group
        self._own_seconds.append(time.monotonic() - began_at)

    def apply(self, after: Position, update: Callable[[], None], reaches: bool = True) -> bool:
        """Update the parameters with the sums of the exchange.

        Returns False if the sums are void, and then a new generation must be formed.

        `after` is the position after the whole step. If `reaches` is false, more exchanges belong to the step, and
        `reach` completes the step. If the result is True, a new generation must still be formed if the attribute
        `aborted` is true.
        """
        with self._changed:
            if self.aborted and not self._step_reached(after):
                return False
            try:
                update()  # under the lock, so that an abort finds the step either applied or not
            finally:
                self._phase = "out"
            if reaches:
                self._applied = after
            return True

    def reach(self, after: Position) -> bool:
        """Complete a step after all its updates.

        If the step is void, returns False, and the caller must undo the step's updates.
        """
        with self._changed:
            if self.aborted and not self._step_reached(after):
                return False
            self._applied = after
            return True

    def all_have_sums(self, exchange_again: Callable[[], bool]) -> bool:
        """Whether every survivor has the sums of the last exchange.

        A script may base decisions only on sums that every survivor has.

        With ps-lite, either all survivors get the sums or no survivor does. With other engines, `exchange_again` makes
        one more exchange. If the additional exchange succeeds, all workers had completed the last exchange. If the
        additional exchange fails, the coordinator's verdict says how many exchanges all workers had completed. All
        other survivors make the same additional exchange, and get the same result.
        """
        if self._engine.release == "zeros":
            return True
        exchanges_before = self._exchanges
        if exchange_again():
            return True
        with self._changed:
            self._changed.wait_for(lambda: self._verdict is not None)
            assert self._verdict is not None
            return self._verdict.exchanges >= exchanges_before

    def _step_reached(self, after: Position) -> bool:
        self._phase = "held"
        self._changed.notify_all()
        self._changed.wait_for(lambda: self._verdict is not None)
        assert self._verdict is not None
        self._phase = "out"
        return self._verdict.position.step >= after.step

    def _enter_phase(self, phase: Literal["wait", "held", "failed"]) -> None:
        with self._changed:
            self._phase = phase
            self._changed.notify_all()

    # ---- the control thread

    def handle(self, order: Abort | Pump | StepVerdict | Where) -> None:
        """Carry out an order of the coordinator, on the control thread. An order for another generation is ignored."""
        if order.generation != self._generation:
            return
        match order:
            case Abort():
                with self._changed:
                    self.aborted = True
                    # issuing only queues work, so this phase ends soon
                    self._changed.wait_for(lambda: self._phase != "issue")
                    if self._engine.release == "error":
                        self._engine.break_off()
                        self._changed.wait_for(lambda: self._phase != "wait")
                    self._questions += 1
                    question_number, answers_at_once = (
                        self._questions,
                        self._phase != "wait" and not self._pumping.locked(),
                    )
                if answers_at_once:
                    self._send_status(order)
                else:  # wait until this worker's gradients, or zeros, are pushed
                    self._on_own_thread("abort", lambda: self._send_status_once_pushed(order, question_number))
            case Where():  # without the lock, which a long update may hold
                is_waiting, position = self._phase != "out", self._applied
                self._say(Whereabouts(generation=order.generation, waits=is_waiting, position=position))
            case Pump():
                question_number = self._questions
                self._on_own_thread("pump", lambda: self._push_zeros(order, question_number))
            case StepVerdict():
                with self._changed:
                    self._verdict = order
                    self._changed.notify_all()

    def _on_own_thread(self, name: str, work: Callable[[], None]) -> None:
        """Call `work` on a new thread, so that the control thread does not wait for `work`.

        Only one of the threads that `_on_own_thread` starts works at a time. `work` must stop if a later abort has made
        it void, as its arrays may no longer exist.
        """
        threading.Thread(target=work, name=name, daemon=True).start()

    def _send_status_once_pushed(self, order: Abort, question: int) -> None:
        with self._pumping:
            if question != self._questions:
                return
            key_numbers, window_count = tuple(self._awaited_arrays(order.generation)), 1
            if key_numbers:
                self._wait_for_push()
                self._engine.kvstore.flush()
                self._engine.kvstore.flush()  # for parts pushed after the answers to the first flush
                window_count = len(windows_of(self._keys_of_numbers(key_numbers)))
        if question == self._questions:
            self._send_status(order, key_numbers, window_count)

    def _send_status(self, order: Abort, key_numbers: tuple[int, ...] = (), window_count: int = 1) -> None:
        with self._changed:
            if order.generation != self._generation:
                return
            assert self._phase != "issue"
            step_status = StepStatus(
                generation=order.generation,
                phase=self._phase,
                position=self._applied,
                answered=self._answered,
                exchanges=self._exchanges,
                keys=key_numbers,
                windows=window_count,
            )
        self._say(step_status)

    def _push_zeros(self, order: Pump, question: int) -> None:
        """Push this worker's share of the zeros that release blocked workers, by the class `Zeros`."""
        with self._pumping:
            if question != self._questions or order.generation != self._generation:
                return
            began_at, zero_rounds, store = time.monotonic(), 0, self._engine.kvstore
            zeros = self._zeros = self._zeros or Zeros(store)
            gradient_keys = self._keys_of_numbers(order.keys or tuple(self._awaited_arrays(order.generation)))
            if order.window is not None:
                gradient_keys = windows_of(gradient_keys)[order.window]
            if order.fills:
                zeros.push_once(gradient_keys)
            else:
                own_keys = share_of(gradient_keys, order.share, order.shares)
                arrays = self._awaited_arrays(order.generation)
                answer_watches = {
                    key.number: store.watch(arrays[key.number]) for key in own_keys if key.number in arrays
                }

                def is_answered(key: Key, part: Any) -> bool:
                    is_own_array_pending = key.number in answer_watches and not answer_watches[key.number]()
                    return not is_own_array_pending or (len(key.parts) > 1 and store.has_answer(part))

                max_idle_checks = int(self._round_seconds() / LOOK_SECONDS)
                zero_rounds = zeros.push_until_answered(
                    own_keys, order.count, order.workers, is_answered, lambda: time.sleep(LOOK_SECONDS), max_idle_checks
                )
        pumped_report = Pumped(
            generation=order.generation, number=order.number, rounds=zero_rounds, seconds=time.monotonic() - began_at
        )
        self._say(pumped_report)

    def _keys_of_numbers(self, key_numbers: Sequence[int]) -> list[Key]:
        return [Key(key_number, tuple(self._engine.kvstore.parts_of([key_number]))) for key_number in key_numbers]

    def _awaited_arrays(self, generation: int) -> dict[int, Any]:
        """Return the arrays whose sums this worker waits for, by key number.

        If this worker waits for no sums, the result is empty.
        """
        with self._changed:
            is_waiting = self._phase == "wait" and self._generation == generation
            return dict(zip(self._numbers, self._arrays, strict=True)) if is_waiting else {}

    def _round_seconds(self) -> float:
        """Return how many seconds a server's answer may take to arrive, estimated from the last exchange.

        On slow links or with many workers, zeros that are pushed again before an answer could arrive only add traffic.
        """
        return min(max(ROUND_SECONDS, 2 * self._exchange_seconds), LONGEST_ROUND_SECONDS)
