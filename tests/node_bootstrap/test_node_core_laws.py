"""What a node decides by itself, at its bounds: pauses, whose marker counts, which step may be looked at, and when a
worker that crashed is started again.

What would break for a user: a node that asks in a busy loop, or never again; one that trains on data that nobody
prepared; one that gives its worker up because of crashes of last week.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from dyntrain.node_bootstrap.core.isolation import IsolationAction, IsolationState, next_isolation_action
from dyntrain.node_bootstrap.core.marker import Marker, MarkerFile, MarkerState, judge_marker
from dyntrain.node_bootstrap.core.pacing import Backoff, Timing
from dyntrain.node_bootstrap.core.plan import DONE, FAILED, Step, StepCondition, can_be_checked, pending
from dyntrain.node_bootstrap.core.restarts import RestartAction, RestartReason, decide_after_crash
from hypothesis import given
from hypothesis import strategies as st

TIMING = Timing(
    own_restart_backoff=Backoff(1.0, 30.0), max_own_restarts=5, restart_window_seconds=600.0, restart_order_seconds=60.0
)


def test_pauses_double_up_to_the_limit_and_never_overflow() -> None:
    backoff = Backoff(0.5, 5.0)
    assert [backoff.delay(tries) for tries in range(6)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert backoff.delay(10_000) == 5.0, "a node may try for weeks"


def test_the_controller_is_asked_again_after_pauses_that_double_from_the_first() -> None:
    ask = Backoff(2.0, 30.0)
    for asks, pause in ((1, 2.0), (2, 4.0), (3, 8.0), (9, 30.0)):
        state = IsolationState(worker_stopped=True, query_count=asks, queried_at=100.0)
        assert next_isolation_action(100.0 + pause - 0.5, state, 1.0, ask) == (IsolationAction.WAIT, 100.0 + pause)
        assert next_isolation_action(100.0 + pause, state, 1.0, ask)[0] is IsolationAction.ASK


# ---- the marker

SCRIPTS = st.sampled_from(["a", "b", None])


@given(
    st.sampled_from(["i-a", "i-b"]),
    SCRIPTS,
    SCRIPTS,
    st.sampled_from([0, 1, 137, -9]),
    st.booleans(),
    st.sampled_from([None, 5.0, 20.0]),
)
def test_a_marker_spares_the_preparation_when_this_instance_did_well_with_this_script_and_never_else(
    instance: str, wrote: str | None, script: str | None, code: int, by_hand: bool, made_at: float | None
) -> None:
    """Also where there was a script and is none any more, or the other way round: what it makes is not there."""
    marker = Marker(instance_id=instance, attempt=1, script_sha256=wrote, exit_code=code, at=1.0, by_hand=by_hand)
    state = judge_marker(MarkerFile(marker.model_dump_json(), made_at), "i-a", script, launched_at=10.0)
    assert state.is_complete == (instance == "i-a" and wrote == script and code == 0), state
    assert not state.is_complete or (state is MarkerState.MARKED) == by_hand


@given(st.sampled_from([None, 9.0, 10.0, 11.0]), st.sampled_from([None, 10.0]), st.sampled_from(["", "\n", " "]))
def test_an_empty_marker_counts_from_the_moment_of_the_launch_and_spares_nothing_before_it_is_written(
    made_at: float | None, launched_at: float | None, text: str
) -> None:
    """An earlier life's word at the same address is none about this instance; and half a line is nobody's word."""
    state = judge_marker(MarkerFile(text, made_at), "i-a", "s", launched_at)
    person = text == "" and made_at is not None and launched_at is not None and made_at >= launched_at
    assert (state is MarkerState.BY_HAND) == person
    assert not state.is_complete


# ---- the plan


class _Blank(Step):
    async def check(self) -> StepCondition:
        return DONE

    async def carry_out_step(self) -> None: ...


class First(_Blank):
    step_name = "first"


class Second(_Blank):
    step_name = "second"


class Third(_Blank):
    step_name, needed_steps = "third", (First, Second)


CONDITIONS = st.sampled_from([DONE, FAILED, pending("it is not there")])


@given(CONDITIONS, CONDITIONS)
def test_a_step_is_looked_at_once_all_that_it_needs_is_done(one: StepCondition, two: StepCondition) -> None:
    """What has failed has made nothing that could be looked at, and one of two is not both."""
    assert can_be_checked(Third(), {First(): one, Second(): two}) == (one == two == DONE)
    assert can_be_checked(First(), {})


# ---- crashes


@pytest.mark.parametrize("cools_until", [0.0, 90.0, 150.0])
def test_a_coordinators_order_has_its_time_from_the_crash_or_from_the_end_of_the_cool_down(cools_until: float) -> None:
    due = max(100.0, cools_until) + 60.0
    waits = decide_after_crash(due - 0.5, 100.0, cools_until, True, (), TIMING)
    assert (waits.action, waits.reason, waits.due_at) == (RestartAction.WAIT, RestartReason.ORDER_AWAITED, due)
    given_up = decide_after_crash(due, 100.0, cools_until, True, (), TIMING)
    assert (given_up.action, given_up.reason) == (RestartAction.GIVE_UP, RestartReason.NO_ORDER)


@given(st.lists(st.floats(0.0, 1500.0), max_size=9), st.floats(0.0, 60.0))
def test_without_a_coordinator_crashes_of_the_last_window_count_and_earlier_ones_do_not(
    ages: list[float], since: float
) -> None:
    now = 10_000.0
    own, recent = tuple(now - age for age in ages), sum(now - (now - age) < 600.0 for age in ages)
    decision, due = decide_after_crash(now, now - since, 0.0, False, own, TIMING), now - since + min(30.0, 2.0**recent)
    if recent >= 5:
        assert (decision.action, decision.reason) == (RestartAction.GIVE_UP, RestartReason.BUDGET_SPENT)
    elif now < due:
        assert (decision.action, decision.due_at) == (RestartAction.WAIT, due), "not looked at again before"
    else:
        assert decision.action is RestartAction.START


def test_a_crash_of_exactly_a_window_ago_does_not_count_any_more() -> None:
    once = replace(TIMING, max_own_restarts=1)
    assert decide_after_crash(1000.0, 0.0, 0.0, False, (400.0,), once).action is RestartAction.START
    assert decide_after_crash(999.0, 0.0, 0.0, False, (400.0,), once).action is RestartAction.GIVE_UP
    assert math.isclose(decide_after_crash(1000.0, 1000.0, 0.0, False, (), TIMING).due_at, 1001.0)
