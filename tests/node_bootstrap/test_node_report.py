"""Reports, restarts, pauses and notices: the decisions, and the event bus's answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from dyntrain.controller.contract.notices import Rebalance
from dyntrain.controller.contract.reports import NodeReport
from dyntrain.node_bootstrap.core.pacing import Backoff, Timing
from dyntrain.node_bootstrap.core.restarts import RestartAction, RestartReason, decide_after_crash
from dyntrain.node_bootstrap.instance.notices import (
    LIFECYCLE_PATH,
    REBALANCE_PATH,
    SPOT_PATH,
    Notice,
    is_new_notice,
    parse_notice,
)
from dyntrain.node_bootstrap.reports.report import Reporter, preferred_report
from dyntrain.training.protocol.clocks import spread
from hypothesis import given
from hypothesis import strategies as st
from node_fakes import INSTANCE, QUICK, MemoryReports, wait_until


def report(outcome: str = "prepared", at: float = 1.0, deadline: float | None = None, reason: str = "") -> NodeReport:
    fields: dict[str, Any] = {"cluster": "demo", "instance_id": INSTANCE, "private_ip": "10.0.0.7", "attempt": 1}
    return NodeReport.model_validate({**fields, "outcome": outcome, "at": at, "deadline": deadline, "reason": reason})


def test_c35_lost_report_is_repeated() -> None:
    """The bus refuses two, and one that it took is lost: without repetition the node stays WAITING for ever."""

    async def scenario() -> int:
        reports = MemoryReports(failures=2)
        reporter = Reporter(reports, QUICK)
        running = asyncio.create_task(reporter.run())
        reporter.set(report())
        await wait_until(lambda: len(reports.sent) >= 3, "repeated")
        running.cancel()
        return len(set(reports.sent))

    assert asyncio.run(scenario()) == 1


def test_listed_is_no_answer_to_a_failure() -> None:
    """A coordinator that still lists a node that failed must not silence its report."""

    async def scenario() -> int:
        reports = MemoryReports()
        reporter = Reporter(reports, QUICK)
        running = asyncio.create_task(reporter.run())
        reporter.set_listed(True)
        reporter.set(report("worker_failed"))
        await wait_until(lambda: len(reports.sent) >= 3, "repeated")
        running.cancel()
        return len(reports.sent)

    assert asyncio.run(scenario()) >= 3


def test_interrupted_node_does_not_become_prepared_again() -> None:
    """It would be taken in minutes before it is taken away."""
    gone = report("interrupted", 2.0, deadline=100.0)
    assert preferred_report(gone, report("prepared", 3.0)) is gone
    assert preferred_report(gone, report("interrupted", 3.0, deadline=200.0)) is gone
    earlier = report("interrupted", 3.0, deadline=50.0)
    assert preferred_report(gone, earlier) is earlier
    assert preferred_report(report(), gone) is gone


def test_a_notice_after_a_recommendation_is_told_though_its_deadline_is_later() -> None:
    """The policy may let the node stay for an hour on the recommendation; the notice leaves it two minutes."""
    advice = report("interrupted", 2.0, deadline=122.0, reason="rebalance")
    taken = report("interrupted", 600.0, deadline=720.0, reason="spot-terminate")
    assert preferred_report(advice, taken) is taken
    assert preferred_report(taken, advice) is taken


@given(st.floats(0.01, 10), st.floats(10, 1000), st.integers(0, 10**9))
def test_pauses_grow_and_are_bounded(first: float, limit: float, tries: int) -> None:
    backoff = Backoff(first, limit)
    assert first <= backoff.delay(tries) <= backoff.delay(tries + 1) <= limit


@given(st.floats(0, 100), st.floats(0, 1, exclude_max=True))
def test_jitter_stays_within_its_share(delay: float, chance: float) -> None:
    assert delay * 0.79 <= spread(delay, chance) <= delay * 1.21


TIMING = Timing()


def test_n8_coordinator_decides_while_it_is_connected() -> None:
    assert decide_after_crash(10.0, 10.0, 0.0, True, (), TIMING).reason is RestartReason.ORDER_AWAITED
    late = decide_after_crash(10.0 + TIMING.restart_order_seconds, 10.0, 0.0, True, (), TIMING)
    assert (late.action, late.reason) == (RestartAction.GIVE_UP, RestartReason.NO_ORDER)
    cools = decide_after_crash(10.0 + TIMING.restart_order_seconds, 10.0, 250.0, True, (), TIMING)
    assert (cools.action, cools.due_at) == (RestartAction.WAIT, 250.0 + TIMING.restart_order_seconds), (
        "no order is lost that the coordinator does not mean to give yet"
    )


def test_n8_pauses_grow_up_to_the_budget() -> None:
    pauses = [
        decide_after_crash(100.0, 100.0, 0.0, False, tuple(range(count)), TIMING).due_at - 100.0 for count in range(5)
    ]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert (
        decide_after_crash(100.0, 100.0, 0.0, False, (1.0, 2.0, 3.0, 4.0, 5.0), TIMING).reason
        is RestartReason.BUDGET_SPENT
    )
    assert (
        decide_after_crash(1000.0, 999.0, 0.0, False, (1.0, 2.0, 3.0, 4.0, 5.0), TIMING).action is RestartAction.START
    )  # long ago


TIMES = st.floats(0, 1e6)


@given(TIMES, TIMES, TIMES, st.booleans(), st.lists(TIMES, max_size=8).map(tuple))
def test_n8_every_wait_has_an_end_in_the_future(
    now: float, crashed_at: float, cools: float, connected: bool, own: tuple[float, ...]
) -> None:
    """A wait that is due already would spin, one without an end would hang the node."""
    decision = decide_after_crash(now, crashed_at, cools, connected, own, TIMING)
    if decision.action is RestartAction.WAIT:
        assert (
            now
            < decision.due_at
            <= max(crashed_at, cools) + max(TIMING.restart_order_seconds, TIMING.own_restart_backoff.limit)
        )
    else:
        assert decision.due_at <= now


@pytest.mark.parametrize(
    ("path", "text", "notice"),
    [
        (SPOT_PATH, '{"action": "terminate", "time": "2030-01-01T00:00:00Z"}', Notice("spot-terminate", 1893456000.0)),
        (SPOT_PATH, '{"action": "stop", "time": "2030-01-01T00:00:00Z"}', Notice("spot-stop", 1893456000.0)),
        (REBALANCE_PATH, '{"noticeTime": "2030-01-01T00:00:00Z"}', Notice("rebalance", 1893456120.0)),
        (LIFECYCLE_PATH, "InService", None),
        (LIFECYCLE_PATH, "Terminated", Notice("autoscaling-terminated", 1120.0)),
        (SPOT_PATH, "<html>", None),
        (SPOT_PATH, "[]", None),
        (SPOT_PATH, '{"action": "terminate", "time": "soon"}', None),
    ],
)
def test_n7_notices_are_understood(path: str, text: str, notice: Notice | None) -> None:
    """An answer that makes no sense must neither end the watch nor be taken for a notice."""
    assert parse_notice(path, text, 1000.0) == notice


@pytest.mark.parametrize(
    ("advice", "kind", "deadline"),
    [
        (Rebalance(), "rebalance", 220.0),
        (Rebalance(grace_seconds=900.0), "rebalance", 1000.0),
        (Rebalance("ignore"), "rebalance", None),
        (Rebalance("ignore", 900.0), "spot-terminate", 220.0),
    ],
)
def test_n7_advice_is_taken_as_the_policy_has_it_and_orders_as_they_are(
    advice: Rebalance, kind: str, deadline: float | None
) -> None:
    """A recommendation is no deadline of AWS's; the two minutes of a Spot interruption are."""
    assert advice.deadline(kind, 220.0) == deadline


def test_n7_repeated_notice_is_no_news() -> None:
    """The service shows a notice for two minutes: it is told once, and again only when it got worse."""
    known = {SPOT_PATH: Notice("spot-terminate", 100.0)}
    assert not is_new_notice(known, SPOT_PATH, Notice("spot-terminate", 100.0))
    assert not is_new_notice(known, SPOT_PATH, Notice("spot-terminate", 130.0))
    assert is_new_notice(known, SPOT_PATH, Notice("spot-terminate", 90.0))
    assert is_new_notice(known, REBALANCE_PATH, Notice("rebalance", 130.0))
