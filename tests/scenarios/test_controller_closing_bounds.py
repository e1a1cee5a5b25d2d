"""When a cluster is closed to the second, by which of its nodes, and whom that ends: what a cluster costs, or loses."""

from __future__ import annotations

from typing import Any

import pytest
from dyntrain.controller.contract.messages import BASE_TAG, OWNER_TAG, ClusterPolicy
from dyntrain.controller.contract.reports import JobReport
from dyntrain.controller.core.decisions.actions import Action, StopBase, Terminate, instances
from dyntrain.controller.core.decisions.closing import Closing, closing_actions, plan_closing
from dyntrain.controller.core.records.acks import Acks, Announcement, MissedReads, Termination
from dyntrain.controller.core.records.facts import ClusterStatement, NodeFacts, StateRead, TagsRead
from dyntrain.controller.core.records.job import JobFacts, job_at
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.core.views.view import Rules, View, view
from fake_aws import START
from fakes import ELASTIC, instance_id

HOUR = 3600.0


def rules(**policy: Any) -> Rules:
    return Rules(ClusterPolicy(**{"cluster": "demo", "after_job": "terminate", **policy}), ELASTIC)


def base(number: int, started: float, now: float, state: Any = "running", **facts: Any) -> View:
    """A base node that was launched from the cluster's template `started` seconds after START."""
    known: dict[str, Any] = {
        "tags_read": TagsRead(started=now, tags={OWNER_TAG: "demo", BASE_TAG: "true"}),
        "state_read": StateRead(started=now, state=state, launched_at=START + started),
        "template": ClusterStatement(at=START, cluster="demo"),
    }
    return view(NodeFacts(instance=instance_id(number), **{**known, **facts}), rules(), now)


def heard(state: Any, at: float) -> JobFacts:
    report = JobReport(
        cluster="demo", job="j", state=state, started_at=START, sequence=1, generation=1, revision=1, members=()
    )
    return JobFacts(report=report, heard_at=START + at)


def judged(views: list[View], facts: JobFacts | None, now: float, by: Rules, **old: Any) -> Closing | None:
    job = job_at(facts, by.policy.lease_seconds, START + now)
    return plan_closing(views, Membership(revision=1, **old), job, facts, by, START + now)


@pytest.mark.parametrize("state", ["finished", "failed"])
@pytest.mark.parametrize(("after", "closes"), [(599.0, False), (600.0, True), (601.0, True)])
def test_ten_minutes_after_the_job_and_not_before(state: str, after: float, closes: bool) -> None:
    now = 100.0 + after
    decision = judged([base(1, 0.0, START + now)], heard(state, 100.0), now, rules())
    assert (decision is not None) == closes
    assert decision is None or (decision.reason, decision.started_until) == (Reason.JOB_OVER, START + 100.0)


@pytest.mark.parametrize(("started", "closes"), [(99.0, True), (100.0, True), (101.0, False)])
def test_a_job_closes_only_what_was_there_when_it_ended(started: float, closes: bool) -> None:
    views = [base(1, started, START + 900.0)]
    decision = judged(views, heard("finished", 100.0), 900.0, rules())
    assert (decision is not None) == closes
    assert decision is None or decision.concerns(views[0])


@pytest.mark.parametrize(("hours", "closes"), [(5.0 * HOUR - 1, False), (5.0 * HOUR, True), (5.0 * HOUR + 1, True)])
def test_the_hours_of_a_cluster_are_those_of_its_oldest_base_node_that_runs(hours: float, closes: bool) -> None:
    """The others with it, which are younger: the cluster has had its time."""
    now = START + hours
    views = [base(1, 0.0, now), base(2, hours - 60.0, now), base(3, -9 * HOUR, now, state="stopped")]
    decision = judged(views, heard("running", hours - 5.0), hours, rules(max_hours=5.0))
    assert (decision is not None) == closes
    assert decision is None or (decision.reason, [decision.concerns(node) for node in views[:2]]) == (
        Reason.OVERTIME,
        [True] * 2,
    )


@pytest.mark.parametrize(("idle", "closes"), [(2 * HOUR - 1, False), (2 * HOUR, True)])
@pytest.mark.parametrize("last", ["start", "report", "rebuilt"])
def test_it_is_idle_since_the_last_of_starts_reports_and_the_loss_of_its_table(
    last: str, idle: float, closes: bool
) -> None:
    at = {"start": 10.0, "report": 10.0, "rebuilt": 10.0, last: 500.0}
    now = 500.0 + idle
    views = [base(1, at["start"], START + now), base(2, 5.0, START + now)]
    decision = judged(
        views, heard("running", at["report"]), now, rules(idle_hours=2.0), rebuilt_at=START + at["rebuilt"]
    )
    assert (decision is not None) == closes
    assert decision is None or decision.reason is Reason.IDLE


def mark(at: float) -> Acks:
    return Acks(closed=Announcement(at=START + at, value=Reason.IDLE.value))


def test_a_closed_cluster_rests_though_a_base_node_of_it_was_lost_before() -> None:
    """What is gone can be closed no more: were it waited for, launches into the cluster would go on."""
    now = START + 900.0
    stopped = base(1, 50.0, now, state="stopped", acks=mark(100.0))
    lost = base(2, 20.0, now, state="terminated", terminated=True)
    decision = judged([stopped, lost], None, 900.0, rules())
    assert decision is not None
    assert (decision.complete, decision.reason, decision.everything) == (True, Reason.IDLE, True)


@pytest.mark.parametrize("another", ["runs", "was started last and is lost"])
def test_a_cluster_of_which_one_base_node_is_closed_does_not_rest_for_another(another: str) -> None:
    now = START + 900.0
    stopped = base(1, 50.0, now, state="stopped", acks=mark(100.0))
    other = base(2, 20.0, now) if another == "runs" else base(2, 200.0, now, state="terminated", terminated=True)
    assert judged([stopped, other], None, 900.0, rules()) is None


def ended(view: View, now: float, how: Any = "terminate") -> tuple[str, ...]:
    ending = Closing(how, Reason.IDLE, START + 500.0, everything=True)
    done: list[Action] = [
        one for one in closing_actions(ending, [view], rules(), now) if isinstance(one, Terminate | StopBase)
    ]
    return tuple(instance for action in done for instance in instances(action))


@pytest.mark.parametrize("how", ["stop", "terminate"])
@pytest.mark.parametrize(
    "facts",
    [
        {"acks": Acks(unseen=MissedReads(at=START, times=1))},
        {"acks": Acks(terminate=Termination(at=START))},
        {"template": None},
        {"tags_read": TagsRead(started=START + 600, tags={BASE_TAG: "true"})},
        {"tags_read": TagsRead(started=START + 600, tags={OWNER_TAG: "other", BASE_TAG: "true"})},
        {"terminated": True},
    ],
    ids=["EC2 does not show it", "its end is ordered", "a tag alone", "nobody's", "another cluster's", "gone"],
)
def test_what_is_not_for_certain_the_clusters_and_there_is_not_touched(how: str, facts: dict[str, Any]) -> None:
    now = START + 600.0
    assert ended(base(1, 0.0, now), now, how) == (instance_id(1),)
    assert ended(base(1, 0.0, now, **facts), now, how) == ()


@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down"])
def test_what_does_not_run_is_neither_stopped_nor_ended(state: str) -> None:
    assert ended(base(1, 0.0, START + 600.0, state=state), START + 600.0) == ()


@pytest.mark.parametrize("what", ["refused", "closed"])
@pytest.mark.parametrize(("since", "again"), [(59.0, False), (60.0, True), (61.0, True)])
def test_after_a_no_and_after_a_call_without_effect_it_is_tried_again_in_a_minute(
    what: str, since: float, again: bool
) -> None:
    now = START + 600.0
    acks = Acks(**{what: Announcement(at=now - since, value=Reason.IDLE.value)})
    assert (ended(base(1, 0.0, now, acks=acks), now) != ()) == again
