"""A step that is voided while it is made: applied on all survivors or on none, and said as it is. A worker that applies
what the others do not holds other weights from then on; one that says less than it has done makes a step count twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from dyntrain.training.engine import SumsLost
from dyntrain.training.protocol.messages import Abort, Broken, Position, StepStatus, StepVerdict, Where, Whereabouts
from dyntrain.training.worker.membership import step as module
from dyntrain.training.worker.membership.step import StepGuard
from fake_servers import FakeStore, Servers
from waiting import wait_for

AT = Position(epoch=1, offset=4, step=2)
AFTER = Position(epoch=1, offset=8, step=3)
FOLLOWING = Position(epoch=1, offset=12, step=4)


class Array(str):
    """Known by its name."""

    def wait_to_read(self) -> None:
        """It is there."""


A, B, C = map(Array, "abc")


class Control:
    """The guard of generation 3, an engine in whose waits the test does what the control thread would, and what was
    said.
    """

    def __init__(self, release: Literal["zeros", "error"] = "zeros") -> None:
        self.release = release
        self.sent: list[Any] = []
        self.waits: list[Any] = []
        self.done: list[str] = []
        self.meanwhile: dict[Any, Callable[[], None]] = {}
        self.broken = False
        self.kvstore = FakeStore(Servers([(str(n), (1,), "float32") for n in range(8)], 2), "here")
        self.guard = StepGuard(self, self.sent.append)  # type: ignore[arg-type]
        self.guard.formed(3, AT)

    def begin_push(self, array: Any) -> Callable[[], None]:
        return lambda: None

    def wait(self, array: Any) -> None:
        self.waits.append(array)
        self.meanwhile.get(array, lambda: None)()
        if self.broken:
            raise SumsLost("closed")

    def break_off(self) -> None:
        self.broken = True
        with self.guard._changed:
            if self.guard._phase == "wait":
                self.guard._phase = "failed"  # as the training thread does in the meantime

    def abort(self, generation: int = 3) -> None:
        known = len(self.sent)
        self.guard.handle(Abort(generation=generation))
        if generation == self.guard._generation:
            wait_for(lambda: len(self.sent) > known, what="where the worker is")

    def verdict(self, position: Position, generation: int = 3, exchanges: int = 0) -> None:
        self.guard.handle(StepVerdict(generation=generation, position=position, exchanges=exchanges))

    def run(self, after: Position = AFTER, arrays: tuple[Array, ...] = (A, B, C)) -> bool:
        return self.guard.run(after, lambda: self.done.append("pushed"), arrays, lambda: self.done.append("applied"))


@pytest.fixture
def control() -> Control:
    return Control()


def test_a_step_that_nobody_disturbs_is_applied_and_said_to_be(control: Control) -> None:
    assert control.run()
    assert control.done == ["pushed", "applied"]
    assert control.waits == ["a", "b", "c"]
    assert control.guard.position == AFTER
    control.abort()
    assert control.sent == [StepStatus(generation=3, phase="out", position=AFTER, answered=3, exchanges=1)]


def test_asked_where_it_is_it_says_so_and_goes_on(control: Control) -> None:
    """The others may wait for it: who waits for sums has done its own part of the step, and is not to blame."""
    control.guard.handle(Where(generation=3))
    control.guard.handle(Where(generation=2))
    control.meanwhile[B] = lambda: control.guard.handle(Where(generation=3))
    assert control.run()
    assert control.sent == [
        Whereabouts(generation=3, waits=False, position=AT),
        Whereabouts(generation=3, waits=True, position=AT),
    ]
    assert not control.guard.aborted


def test_after_a_loss_no_step_is_begun(control: Control) -> None:
    """Its gradients would be summed with nobody's."""
    control.abort()
    assert control.guard.aborted
    assert not control.run()
    assert control.done == []
    assert control.sent == [StepStatus(generation=3, phase="out", position=AT, answered=0)]


@pytest.mark.parametrize(("array", "answered"), [("a", 0), ("b", 1), ("c", 2)])
@pytest.mark.parametrize(
    ("verdict", "applied"), [(AT, False), (AFTER, True), (FOLLOWING, True), (AT.model_copy(update={"step": 1}), False)]
)
def test_t7_a_step_in_which_a_worker_is_lost_is_applied_where_the_verdict_leads_and_not_short_of_it(
    control: Control, array: str, answered: int, verdict: Position, applied: bool
) -> None:
    def lost() -> None:
        control.abort()
        control.verdict(verdict)

    control.meanwhile[array] = lost
    assert control.run() == applied
    assert control.sent == [StepStatus(generation=3, phase="wait", position=AT, answered=answered, keys=(0, 1, 2))]
    assert control.done == ["pushed", "applied"][: 1 + applied]
    assert control.guard.position == (AFTER if applied else AT)
    assert control.guard.aborted, "a new generation follows either way"
    control.abort()
    assert control.sent[-1].phase == "out", "asked again, it has left the step"


def test_what_is_of_another_generation_changes_nothing(control: Control) -> None:
    for generation in (2, 4):
        control.abort(generation)
        control.verdict(AT, generation)
    assert control.run()
    assert (control.sent, control.guard.aborted) == ([], False)


def test_in_the_next_generation_nothing_of_the_last_loss_is_left(control: Control) -> None:
    assert control.run()
    control.abort()
    control.verdict(AT)
    control.guard.formed(4, AFTER)
    assert control.guard.position == AFTER
    assert control.run(FOLLOWING)
    control.abort(4)
    assert control.sent[-1] == StepStatus(generation=4, phase="out", position=FOLLOWING, answered=3, exchanges=1)
    assert control.guard._verdict is None, "or the next step would be taken for voided already"


@pytest.mark.parametrize(("array", "answered"), [("x", 5), ("y", 6)])
def test_the_keys_that_are_waited_for_are_counted_from_the_first_of_them(
    control: Control, array: str, answered: int
) -> None:
    """Zeros go to those from there on."""

    def lost() -> None:
        control.abort()
        control.verdict(AT)

    control.meanwhile[array] = lost
    assert not control.guard.run(AFTER, lambda: None, [Array("x"), Array("y")], lambda: None, first=5)
    assert control.sent[0].answered == answered


def test_what_a_script_raises_in_an_update_leaves_no_step_behind(control: Control) -> None:
    def raises() -> None:
        raise ValueError("of the script's optimizer")

    with pytest.raises(ValueError, match="of the script's"):
        control.guard.run(AFTER, lambda: None, [A], raises)
    control.abort()
    assert (control.sent[0].phase, control.sent[0].position) == ("out", AT)


def test_a_boundary_is_where_a_worker_stands_under_whatever_name(control: Control) -> None:
    assert control.run()
    control.guard.set_position(FOLLOWING)
    control.abort()
    assert control.sent[0].position == FOLLOWING


# ---- steps of several updates


def test_a_step_is_reached_with_its_last_update_and_not_before(control: Control) -> None:
    guard = control.guard
    for last in (False, True):
        assert guard.exchange([0], lambda: None, [A])
        assert guard.apply(AFTER, lambda: control.done.append("applied"), reaches=last)
        assert guard.position == (AFTER if last else AT)
    assert guard.reach(FOLLOWING)
    assert guard.position == FOLLOWING


@pytest.mark.parametrize(("verdict", "reached"), [(AT, False), (AFTER, True), (FOLLOWING, True)])
def test_t7_updates_that_the_verdict_does_not_reach_are_taken_back(
    control: Control, verdict: Position, reached: bool
) -> None:
    guard = control.guard
    assert guard.exchange([0], lambda: None, [A])
    assert guard.apply(AFTER, lambda: None, reaches=False)
    control.abort()
    control.verdict(verdict)
    assert guard.reach(AFTER) == reached
    assert guard.position == (AFTER if reached else AT)


# ---- engines whose sums can be lost


def test_t7_whose_sums_are_lost_says_so_once_and_waits_for_all_that_is_in_flight() -> None:
    """It may know before anybody tells it."""
    control = Control("error")

    def lost() -> None:
        control.broken = True
        control.guard._say = answer

    def answer(message: Any) -> None:
        control.sent.append(message)
        control.verdict(AT)

    control.meanwhile["b"] = lost
    assert not control.run()
    assert control.waits == ["a", "b", "c"], "before the group is left"
    assert control.sent == [Broken(generation=3, reason="closed")]
    assert control.guard.aborted
    assert control.done == ["pushed"]
    control.abort()
    assert control.sent[-1].phase == "out"


def test_t7_who_was_told_of_the_loss_before_does_not_say_it_again() -> None:
    control = Control("error")

    def lost() -> None:
        control.abort()
        control.verdict(FOLLOWING)

    control.meanwhile["b"] = lost
    assert not control.run(), "whatever the verdict is: it has no sums"
    assert [type(message) for message in control.sent] == [StepStatus]
    assert control.sent[0].phase == "failed"
    assert control.guard.position == AT


@pytest.mark.parametrize(("ended", "has"), [(0, False), (1, False), (2, True), (3, True)])
def test_what_one_worker_decides_by_came_to_all_or_is_not_decided_by(ended: int, has: bool) -> None:
    control = Control("error")
    for _ in range(2):
        assert control.guard.exchange([0], lambda: None, [A])

    def again() -> bool:
        control.verdict(AT, exchanges=ended)
        return False

    assert control.guard.all_have_sums(again) == has
    assert control.guard.all_have_sums(lambda: True), "the next one came to its end, so all had come to it"


def test_with_sums_that_come_to_all_or_to_none_nothing_more_is_asked(control: Control) -> None:
    def never() -> bool:
        raise AssertionError("an exchange that the others do not make")

    assert control.guard.all_have_sums(never)


# ---- clocks


def test_zeros_follow_at_the_links_pace_within_bounds(control: Control) -> None:
    guard = control.guard
    rounds = []
    for took in (0.0, 0.4, 100.0):
        guard._exchange_seconds = took
        rounds.append(guard._round_seconds())
    assert rounds == [module.ROUND_SECONDS, 0.8, module.LONGEST_ROUND_SECONDS]


def test_a_workers_own_time_is_without_its_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    control = Control()
    guard = control.guard

    class Array:
        def wait_to_read(self) -> None:
            now[0] += 1.0  # the rest of its backward pass

    def spend(seconds: float) -> Callable[[], None]:
        return lambda: now.__setitem__(0, now[0] + seconds)

    array = Array()
    control.meanwhile[array] = spend(10.0)  # the others are slow
    assert guard.exchange([0], lambda: None, [array])
    assert guard.own_seconds is None, "where it began nobody knows"
    assert guard.apply(AFTER, lambda: None)
    spend(3.0)()
    assert guard.exchange([1], lambda: None, [array], aside=True)
    assert guard.own_seconds is None, "not of what is summed beside the gradients"
    spend(2.0)()
    assert guard.exchange([0], lambda: None, [array])
    assert guard.own_seconds == pytest.approx(3.0 + 2.0 + 1.0)
    assert guard.apply(FOLLOWING, lambda: None)
    spend(50.0)()
    assert guard.exchange([0], lambda: None, [array])
    assert guard.own_seconds == pytest.approx(6.0), "one of so many steps is measured: it costs the overlap"
    guard.set_position(FOLLOWING.model_copy(update={"step": 2 * module.STEPS_PER_MEASUREMENT}))
    assert guard.exchange([0], lambda: None, [array])
    assert guard.own_seconds == pytest.approx(6.0), "nor the wait at a boundary"
    for number, seconds in enumerate((40.0, 5.0, 5.0), start=3):
        guard.set_position(FOLLOWING.model_copy(update={"step": number * module.STEPS_PER_MEASUREMENT}))
        guard.exchange([1], lambda: None, [array], aside=True)
        spend(seconds)()
        assert guard.exchange([0], lambda: None, [array])
    assert guard.own_seconds == pytest.approx(6.0), "one step that shared its processor makes nobody slow"
