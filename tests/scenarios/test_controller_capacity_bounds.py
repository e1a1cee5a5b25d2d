"""How long a group rests after a launch failed, how far it is lowered and filled back: to the second and machine."""

from __future__ import annotations

from typing import Any

import pytest
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.decisions.capacity import CapacityPlan, cooldown_seconds, needs_size, plan_capacity
from dyntrain.controller.core.records.groups import Capacity, GroupFacts, GroupSize, LaunchFailure
from fake_aws import START

POLICY = ClusterPolicy(cluster="demo", launch_cooldown_seconds=300.0)


def memory(at: float, **changes: Any) -> Capacity:
    fields: dict[str, Any] = {"failure": 0.0, "wanted": 8, "desired": 3, "times": 1, "done": True}
    return Capacity(at=START + at, **{**fields, **changes})


def planned(now: float, size: GroupSize, failed: float | None = None, known: Capacity | None = None) -> Any:
    failure = LaunchFailure(at=START + failed, message="none left") if failed is not None else None
    facts = GroupFacts(group="g", failed=failure, capacity=known)
    plan = plan_capacity(facts, size, POLICY, START + now)
    assert plan is None or needs_size(facts, POLICY, START + now), "what is not due is not even read"
    return plan


def size(desired: int, running: int, minimum: int = 0, maximum: int = 10) -> GroupSize:
    return GroupSize(minimum, maximum, desired, running)


def test_the_rest_after_a_failure_doubles_up_to_two_hours_or_to_what_the_policy_says() -> None:
    assert [cooldown_seconds(times, POLICY) for times in range(1, 8)] == [300, 600, 1200, 2400, 4800, 7200, 7200]
    assert cooldown_seconds(1000, POLICY) == 7200.0
    patient = ClusterPolicy(cluster="demo", launch_cooldown_seconds=9000.0)
    assert [cooldown_seconds(times, patient) for times in (1, 2, 50)] == [9000.0] * 3


@pytest.mark.parametrize(("times", "rest"), [(1, 300.0), (3, 1200.0)])
@pytest.mark.parametrize(("off", "again"), [(-1.0, False), (0.0, True)])
def test_it_is_filled_back_when_its_rest_is_over(times: int, rest: float, off: float, again: bool) -> None:
    plan = planned(rest + off, size(desired=3, running=3), known=memory(0.0, times=times))
    assert (plan is not None) == again
    assert plan is None or (plan.why, plan.desired, plan.memory.done) == ("FILLED_BACK", 8, False)


@pytest.mark.parametrize(("maximum", "desired"), [(7, 7), (8, 8), (9, 8)])
def test_it_is_not_filled_back_above_a_maximum_that_was_lowered_meanwhile(maximum: int, desired: int) -> None:
    """AWS would refuse the call, each time that it is repeated."""
    plan = planned(300.0, size(desired=3, running=3, maximum=maximum), known=memory(0.0))
    assert (plan.desired, plan.memory.wanted, plan.memory.desired) == (desired, desired, desired)


@pytest.mark.parametrize(("running", "minimum", "lowered"), [(3, 0, 3), (3, 3, 3), (2, 4, 4), (0, 0, 0)])
def test_it_is_lowered_to_what_runs_and_never_below_its_minimum(running: int, minimum: int, lowered: int) -> None:
    plan = planned(0.0, size(desired=6, running=running, minimum=minimum), failed=0.0)
    assert (plan.why, plan.desired, plan.memory.wanted) == ("LOWERED", lowered, 6)


@pytest.mark.parametrize("running", [6, 7])
def test_where_all_that_is_wanted_runs_nothing_is_lowered_and_the_failure_is_answered(running: int) -> None:
    plan = planned(0.0, size(desired=6, running=running), failed=0.0)
    assert (plan.why, plan.desired) == ("NOTHING_TO_LOWER", None)
    assert planned(1.0, size(desired=6, running=3), failed=0.0, known=plan.memory) is None


@pytest.mark.parametrize(("age", "answered"), [(899.0, True), (900.0, False), (5000.0, False)])
def test_a_failure_of_a_quarter_of_an_hour_ago_says_nothing_of_now(age: float, answered: bool) -> None:
    assert (planned(age, size(desired=6, running=3), failed=0.0) is not None) == answered


@pytest.mark.parametrize(("failed", "lowers"), [(99.0, False), (100.0, False), (101.0, True)])
def test_a_failure_from_before_the_last_decision_is_answered_by_it(failed: float, lowers: bool) -> None:
    """Its event came late; what the group has got since then would be ended."""
    plan = planned(110.0, size(desired=5, running=3), failed=failed, known=memory(100.0, wanted=5, desired=5))
    assert (plan is not None and plan.why == "LOWERED") == lowers


@pytest.mark.parametrize(("later", "times"), [(1199.0, 2), (1200.0, 1)])
def test_failures_in_a_row_count_up_and_one_that_stands_alone_begins_anew(later: float, times: int) -> None:
    """In a row is what fails again before twice the next rest is over."""
    plan: CapacityPlan = planned(later, size(desired=8, running=3), failed=later, known=memory(0.0, desired=8))
    assert plan.why == "LOWERED"
    assert plan.memory.times == times


def test_a_second_failure_after_the_filling_back_keeps_what_was_wanted_at_first() -> None:
    plan = planned(400.0, size(desired=6, running=3), failed=400.0, known=memory(300.0, wanted=8, desired=6))
    assert (plan.desired, plan.memory.wanted) == (3, 8)
    changed = planned(400.0, size(desired=5, running=3), failed=400.0, known=memory(300.0, wanted=8, desired=6))
    assert (changed.desired, changed.memory.wanted) == (3, 5), "a person has decided since"


@pytest.mark.parametrize(("limits", "desired"), [((0, 10), 3), ((4, 10), 4), ((0, 2), 2)])
def test_what_was_begun_and_not_seen_to_be_done_is_repeated_within_the_limits_of_now(
    limits: tuple[int, int], desired: int
) -> None:
    plan = planned(1.0, size(desired=8, running=3, minimum=limits[0], maximum=limits[1]), known=memory(0.0, done=False))
    assert (plan.why, plan.desired) == ("REPEATED", desired)


def test_what_others_have_set_stands_and_nothing_is_filled_back_later() -> None:
    plan = planned(300.0, size(desired=4, running=3), known=memory(0.0))
    assert (plan.why, plan.desired) == ("CHANGED_BY_OTHERS", None)
    assert planned(9000.0, size(desired=4, running=4), known=plan.memory) is None
