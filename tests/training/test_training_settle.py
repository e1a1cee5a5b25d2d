"""Who is in the next generation: if this is wrong, people's wishes are not carried out, or a job stops for nothing."""

from __future__ import annotations

from dataclasses import replace

from dyntrain.training.protocol.messages import Position
from dyntrain.training.session.generation.generation import Cause, Limits, SettlementReason, cause_of, settle
from dyntrain.training.session.generation.origin import Origin
from hypothesis import given
from hypothesis import strategies as st

LIMITS = Limits(min_workers=1, max_workers=4)
names = st.lists(st.sampled_from("abcdefgh"), unique=True)


def test_survivors_keep_their_order_and_joiners_follow_the_target() -> None:
    decision = settle(["c", "a"], {"d", "b"}, ["a", "b", "c", "d"], LIMITS, group_ready=True)
    assert decision.members == ("c", "a", "b", "d")


def test_t4_a_swap_is_one_change() -> None:
    assert settle(["a", "b"], {"c"}, ["a", "c"], LIMITS, group_ready=True).members == ("a", "c")


def test_a_wanted_node_that_is_not_ready_is_left_out_and_does_not_hold_up_the_others() -> None:
    assert settle(["a"], set(), ["a", "b"], LIMITS, group_ready=True).reason is SettlementReason.UNCHANGED


def test_a_ready_node_that_is_not_wanted_stays_outside() -> None:
    assert settle(["a"], {"b"}, ["a"], LIMITS, group_ready=True).members == ("a",)


def test_t5_when_every_member_is_replaced_at_once_one_stays_to_hand_the_state_over() -> None:
    decision = settle(["a", "b"], {"c", "d"}, ["c", "d"], LIMITS, group_ready=True)
    assert (decision.members, decision.reason) == (("a", "c", "d"), SettlementReason.ONE_STAYS)


def test_without_a_target_nothing_changes() -> None:
    assert settle(["a"], {"b"}, None, LIMITS, group_ready=True).members == ("a",)


def test_t11_extras_beyond_the_maximum_wait() -> None:
    decision = settle(["a", "b", "c", "d"], {"e"}, list("abcde"), LIMITS, group_ready=True)
    assert (decision.members, decision.reason) == (("a", "b", "c", "d"), SettlementReason.ABOVE_MAXIMUM)


def test_t10_below_the_minimum_the_job_pauses_and_says_so() -> None:
    decision = settle(["a"], set(), ["a"], Limits(2, 4), group_ready=True)
    assert (decision.members, decision.reason) == (None, SettlementReason.BELOW_MINIMUM)


def test_a_change_without_blank_processes_waits_instead_of_stopping_the_job() -> None:
    decision = settle(["a"], {"b"}, ["a", "b"], LIMITS, group_ready=False)
    assert (decision.members, decision.reason) == (("a",), SettlementReason.NO_GROUP)


def test_when_a_member_is_gone_the_old_formation_cannot_go_on() -> None:
    decision = settle(["a"], set(), ["a", "b"], LIMITS, group_ready=False, intact=False)
    assert decision.members is None


def test_an_event_says_what_made_the_new_generation_necessary() -> None:
    here = Origin(Position(epoch=1, offset=0, step=2))
    assert cause_of("", "", "", here) is Cause.START
    assert cause_of("", "", "", replace(here, commit="c1")) is Cause.COMMIT
    assert cause_of("", "", "", replace(here, safe="5f")) is Cause.SAFE_STATE
    assert cause_of("ab", "a", "b", here) is Cause.CHANGE
    assert cause_of("ab", "ab", "", here) is Cause.CHANGE
    assert cause_of("ab", "a", "", here) is Cause.LOSS, "also when b's next process takes part at once"


@given(
    current=names,
    standing=names,
    target=st.none() | names,
    low=st.integers(1, 3),
    ready=st.booleans(),
    intact=st.booleans(),
)
def test_a_settlement_never_admits_the_unready_or_unwanted_and_keeps_the_limits(
    current: list[str], standing: list[str], target: list[str] | None, low: int, ready: bool, intact: bool
) -> None:
    members = settle(current, set(standing), target, Limits(low, 4), ready, intact).members
    if members is None or list(members) == current:
        return
    assert target is not None
    assert ready
    carrier = set(members) - set(target)
    assert not carrier or (carrier == {current[0]} and not set(members) & set(current) - carrier), (
        "one stays if all others are new"
    )
    assert not current or set(members) & set(current), "somebody holds the state"
    assert set(members) <= set(current) | set(standing)
    assert low <= len(members) <= 4
    assert len(set(members)) == len(members)
