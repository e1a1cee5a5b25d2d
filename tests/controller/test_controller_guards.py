"""What keeps an action from being planned, one condition after the other, whatever the status says.

Each row takes one thing away from a case in which the action is planned; so no condition is there for another's sake.
"""

from __future__ import annotations

from typing import Any

import pytest
from dyntrain.controller.contract.messages import BASE_TAG, OWNER_TAG, STATUS_TAG, ClusterPolicy, Status
from dyntrain.controller.core.decisions.actions import (
    Action,
    CompleteLifecycle,
    HeartbeatLifecycle,
    Protect,
    ResumeReplacement,
    SetStatusTag,
    StampOwner,
    StopBase,
    SuspendReplacement,
    Terminate,
    TerminateInGroup,
    acks_of_effect,
    acks_of_refusal,
)
from dyntrain.controller.core.decisions.status import Standing
from dyntrain.controller.core.planning import NodeStatus, plan_actions
from dyntrain.controller.core.records.acks import (
    NO_ACKS,
    Acks,
    Announcement,
    Effect,
    LifecycleResult,
    MissedReads,
    Termination,
)
from dyntrain.controller.core.records.facts import (
    ClusterStatement,
    GroupRead,
    Hook,
    NodeFacts,
    Preparation,
    SignOfLife,
    StateRead,
    TagsRead,
    Transition,
)
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.core.views.view import Rules, view
from fakes import ELASTIC, START

NODE, GROUP = "i-00000001", "demo-workers"
POLICY = ClusterPolicy(cluster="demo", groups=(GROUP,), hook_cap_seconds=1000.0)
RULES = Rules(POLICY, ELASTIC)
NOW = START + 2000.0
MINE = {OWNER_TAG: "demo"}
REMOVED = Standing("REMOVED", Reason.UNTAGGED)


def tags(values: dict[str, str], started: float = NOW) -> TagsRead:
    return TagsRead(started=started, tags=values)


def running_since(launched_at: float, started: float = NOW) -> StateRead:
    return StateRead(started=started, state="running", launched_at=launched_at)


def planned(standing: Standing, **facts: Any) -> list[Action]:
    known: dict[str, Any] = {
        "tags_read": tags(MINE),
        "state_read": running_since(START - 900),
        "template": ClusterStatement(at=START, cluster="demo"),
        "wished": ClusterStatement(at=START, cluster="demo"),
        "acks": Acks(mirror=Announcement(at=NOW, value=standing.status)),
    }
    node = view(NodeFacts(instance=NODE, **{**known, **facts}), RULES, NOW)
    return list(plan_actions([NodeStatus(node, standing)], RULES, NOW))


def acks(**more: Any) -> Acks:
    return Acks(mirror=Announcement(at=NOW, value="REMOVED"), **more)


def seen(phase: Any, group: str | None = GROUP, **more: Any) -> GroupRead:
    return GroupRead(started=NOW, group=group, phase=phase, **more)


def test_what_was_removed_is_ended_alone_or_by_its_group_which_is_made_smaller_only_if_that_was_asked_for() -> None:
    assert planned(REMOVED) == [Terminate((NODE,))]
    assert planned(REMOVED, group_read=seen("in_service")) == [TerminateInGroup(NODE, GROUP, True)]
    wished = tags({**MINE, ELASTIC.of("demo"): ""})
    for reason in (Reason.JOB_OVER, Reason.IDLE, Reason.OVERTIME, Reason.INTERRUPTED, Reason.WORKER_FAILED):
        lowers = reason not in (Reason.INTERRUPTED, Reason.WORKER_FAILED)
        actions = planned(Standing("REMOVED", reason), group_read=seen("in_service"), tags_read=wished)
        assert actions == [TerminateInGroup(NODE, GROUP, lowers)]


NOT_ENDED: dict[str, dict[str, Any]] = {
    "a base node": {"tags_read": tags({**MINE, BASE_TAG: "true"})},
    "its end was ordered": {"acks": acks(terminate=Termination(at=NOW - 500))},
    "nobody has read its tags": {"tags_read": None, "acks": acks(stamps={"demo": Effect(at=NOW)})},
    "it shuts down": {"state_read": StateRead(started=NOW, state="shutting-down")},
    "EC2 does not show it": {"acks": acks(unseen=MissedReads(at=NOW, times=1))},
    "it is terminated": {"terminated": True},
    "nothing but a tag says whose it is": {"template": None},
    "nobody has asked for it": {"wished": None},
    "another cluster has asked for it": {"wished": ClusterStatement(at=START, cluster="other")},
    "it came from the template and is nobody's": {"tags_read": tags({})},
    "it is another cluster's": {"tags_read": tags({OWNER_TAG: "other"})},
    "AWS said no a moment ago": {"acks": acks(refused=Announcement(at=NOW - 59, value="no"))},
    "its group is not the cluster's": {"group_read": seen("in_service", "web")},
    "its group ends it": {"group_read": seen("terminating")},
    "its group has let it go": {"group_read": seen("left")},
}


@pytest.mark.parametrize("facts", NOT_ENDED.values(), ids=NOT_ENDED)
def test_nothing_is_ended_that_lacks_one_of_the_conditions(facts: dict[str, Any]) -> None:
    actions = planned(REMOVED, **facts)
    assert not [one for one in actions if isinstance(one, Terminate | TerminateInGroup)]


@pytest.mark.parametrize("now_after_read", [1.0, 500.0])
@pytest.mark.parametrize("status", ["ADD_QUEUED", "ADDED", "REMOVED", "PREPARE_FAILED"])
def test_a_new_instance_of_which_a_read_may_not_show_all_tags_is_treated_like_a_base_node(
    status: Status, now_after_read: float
) -> None:
    """EC2 may show a new instance with some of its tags only, and the missing tag may be that of a base node."""
    read_at = NOW - now_after_read
    new: dict[str, Any] = {
        "state_read": running_since(read_at - 5, started=read_at),
        "tags_read": tags(MINE, started=read_at),
        "group_read": seen("in_service"),
        "wished": None,
        "acks": NO_ACKS,
    }
    assert planned(Standing(status, Reason.JOB_OVER), **new) == []
    shown = {**new, "tags_read": tags({**MINE, ELASTIC.of("demo"): ""}, started=read_at)}
    assert planned(Standing(status, Reason.JOB_OVER), **shown)[0] == SetStatusTag((NODE,), status)


@pytest.mark.parametrize("status", ["WAITING", "ADD_QUEUED", "ADDED", "REMOVAL_QUEUED", "PREPARE_FAILED", "GONE"])
def test_nothing_is_ended_before_it_is_removed(status: Status) -> None:
    assert not planned(Standing(status, Reason.UNTAGGED))


def test_what_a_person_stopped_and_wishes_to_have_and_what_its_group_abandons_is_not_ended() -> None:
    wished = tags({**MINE, ELASTIC.of("demo"): ""})
    assert not planned(Standing("REMOVED", Reason.STOPPED), tags_read=wished)
    assert planned(Standing("REMOVED", Reason.STOPPED)) == [Terminate((NODE,))]
    assert not planned(Standing("REMOVED", Reason.ABANDONED), group_read=seen("in_service"))
    assert planned(Standing("REMOVED", Reason.ABANDONED)) == [Terminate((NODE,))]


def test_a_minute_after_aws_said_no_it_is_asked_again() -> None:
    assert planned(REMOVED, acks=acks(refused=Announcement(at=NOW - 60, value="no"))) == [Terminate((NODE,))]


def answered(status: Status, transition: Transition, age: float, phase: Any = None, **facts: Any) -> str:
    """What is planned for a lifecycle action of that age."""
    phase = phase or ("launching" if transition == "launch" else "terminating")
    hook = Hook(at=NOW - age, group=GROUP, hook="h", transition=transition, token="t")
    facts = {"group_read": seen(phase), "hooks": {"t": hook}, **facts}
    acted = planned(Standing(status, Reason.PREPARING), **facts)
    answers = [
        one.result if isinstance(one, CompleteLifecycle) else "beat"
        for one in acted
        if isinstance(one, CompleteLifecycle | HeartbeatLifecycle)
    ]
    assert len(answers) <= 1
    return answers[0] if answers else ""


PREPARED = Preparation(attempt=1, at=NOW, outcome="prepared")
FAILED = Preparation(attempt=1, at=NOW, outcome="prepare_failed")
HEARD = SignOfLife(at=NOW, doing="prepare-data runs")
WORKER_FAILED = Preparation(attempt=1, at=NOW, outcome="worker_failed")


@pytest.mark.parametrize(
    ("status", "age", "facts", "answer"),
    [
        ("ADD_QUEUED", 1.0, {"preparation": PREPARED}, "CONTINUE"),
        ("WAITING", 1.0, {"preparation": PREPARED}, "CONTINUE"),
        ("REMOVED", 1.0, {"preparation": PREPARED}, ""),
        ("PREPARE_FAILED", 1.0, {"preparation": FAILED}, "ABANDON"),
        ("PREPARE_FAILED", 1.0, {}, "ABANDON"),
        ("PREPARE_FAILED", 1.0, {"wished": None}, ""),
        ("PREPARE_FAILED", 1.0, {"wished": None, "acks": Acks(joined={"demo": Effect(at=NOW)})}, "ABANDON"),
        ("PREPARE_FAILED", 1.0, {"wished": None, "tags_read": tags({**MINE, BASE_TAG: "true"})}, "CONTINUE"),
        (
            "PREPARE_FAILED",
            1.0,
            {"wished": None, "tags_read": tags(MINE, started=NOW - 900), "state_read": running_since(NOW - 905)},
            "",
        ),
        ("ADD_QUEUED", 1.0, {"preparation": WORKER_FAILED}, ""),
        ("WAITING", 59.0, {"heard": HEARD}, ""),
        ("WAITING", 60.0, {"heard": HEARD}, "beat"),
        ("WAITING", 60.0, {}, ""),
        ("ADD_QUEUED", 60.0, {"heard": HEARD}, ""),
        ("WAITING", 500.0, {"heard": HEARD, "acks": Acks(heartbeats={"t": Effect(at=NOW - 59)})}, ""),
        ("WAITING", 500.0, {"heard": HEARD, "acks": Acks(heartbeats={"t": Effect(at=NOW - 60)})}, "beat"),
        (
            "WAITING",
            500.0,
            {"heard": HEARD, "acks": Acks(answers={"t": LifecycleResult(at=NOW, result="refused")})},
            "",
        ),
        ("WAITING", 500.0, {"heard": HEARD, "group_read": seen("in_service")}, ""),
    ],
)
def test_a_launch_goes_on_when_its_node_is_prepared_is_given_up_when_it_failed_and_is_kept_alive_until_then(
    status: Status, age: float, facts: dict[str, Any], answer: str
) -> None:
    assert answered(status, "launch", age, **facts) == answer
    if "group_read" not in facts:
        assert answered(status, "launch", age, phase="warm", **facts) == answer


@pytest.mark.parametrize(
    ("status", "age", "answer"),
    [
        ("REMOVED", 1.0, "CONTINUE"),
        ("PREPARE_FAILED", 1.0, "CONTINUE"),
        ("REMOVAL_QUEUED", 59.0, ""),
        ("REMOVAL_QUEUED", 60.0, "beat"),
        ("REMOVAL_QUEUED", 999.0, "beat"),
        ("REMOVAL_QUEUED", 1000.0, "CONTINUE"),
        ("ADDED", 999.0, ""),
        ("ADDED", 1000.0, "CONTINUE"),
    ],
)
def test_a_group_that_ends_a_node_waits_for_the_job_and_not_longer_than_its_hook(
    status: Status, age: float, answer: str
) -> None:
    assert answered(status, "terminate", age) == answer
    assert answered(status, "terminate", age, phase="in_service") == ""
    assert answered(status, "terminate", age, group_read=seen("terminating", "web")) == ""


def test_no_status_is_written_to_who_was_never_asked_is_not_shown_is_gone_or_is_told_already() -> None:
    added = Standing("ADDED", Reason.TRAINING)
    fresh: dict[str, Any] = {"acks": NO_ACKS, "tags_read": tags(MINE)}
    assert planned(added, **fresh) == [SetStatusTag((NODE,), "ADDED")]
    assert planned(added, **{**fresh, "acks": Acks(unseen=MissedReads(at=NOW, times=1))}) == []
    assert planned(added, **{**fresh, "tags_read": tags({**MINE, BASE_TAG: "true"})}) == []
    assert planned(added, **{**fresh, "tags_read": tags({**MINE, STATUS_TAG: "ADDED"})}) == []
    assert planned(added, **{**fresh, "terminated": True}) == []
    assert planned(Standing("REMOVED", Reason.NEVER_ASKED), **{**fresh, "template": None}) == []


@pytest.mark.parametrize(
    ("facts", "stamped"),
    [
        ({}, True),
        ({"group_read": seen("warm")}, True),
        ({"group_read": seen("launching")}, True),
        ({"group_read": seen("terminating")}, False),
        ({"group_read": seen("left")}, False),
        ({"group_read": seen("in_service", "web")}, False),
        ({"tags_read": tags({OWNER_TAG: "other"})}, False),
        ({"tags_read": None}, False),
        ({"acks": Acks(stamps={"demo": Effect(at=NOW)})}, False),
        ({"acks": Acks(unseen=MissedReads(at=NOW, times=1))}, False),
        ({"terminated": True}, False),
    ],
)
def test_a_member_of_a_group_is_stamped_unless_it_is_somebody_elses_or_on_its_way_out(
    facts: dict[str, Any], stamped: bool
) -> None:
    actions = planned(
        Standing("WAITING", Reason.PREPARING), **{"group_read": seen("in_service"), "tags_read": tags({}), **facts}
    )
    assert (StampOwner((NODE,), "demo") in actions) == stamped


@pytest.mark.parametrize(
    ("done", "read", "protects"),
    [
        (None, None, True),
        (None, False, True),
        (None, True, False),
        (NOW - 10.0, False, False),  # read before the protection has settled
        (NOW - 10.5, False, True),  # somebody has taken it away
        (NOW - 10.5, True, False),
        (NOW - 500.0, None, False),
    ],
)
def test_a_base_node_is_protected_and_again_where_a_settled_read_finds_it_bare(
    done: float | None, read: bool | None, protects: bool
) -> None:
    actions = planned(
        Standing("ADDED", Reason.TRAINING),
        tags_read=tags({**MINE, BASE_TAG: "true"}),
        group_read=seen("in_service", protected=read),
        acks=Acks(protections={GROUP: Effect(at=done)} if done is not None else {}),
    )
    assert actions == ([Protect((NODE,), GROUP)] if protects else [])


def test_every_base_node_of_a_group_is_protected_and_no_other_groups_or_elastic_one() -> None:
    count = 120
    nodes = []
    for number in range(count):
        own = {**MINE, BASE_TAG: "true"} if number % 4 else MINE
        group = seen("in_service" if number % 3 else "launching", GROUP if number % 5 else "web")
        facts = NodeFacts(instance=f"i-{number:08x}", tags_read=tags(own), group_read=group)
        nodes.append(NodeStatus(view(facts, RULES, NOW), Standing("WAITING", Reason.PREPARING)))
    actions = [one for one in plan_actions(nodes, RULES, NOW) if isinstance(one, Protect)]
    wanted = tuple(f"i-{number:08x}" for number in range(count) if number % 4 and number % 3 and number % 5)
    assert len(wanted) > 40
    assert actions == [Protect(wanted, GROUP)]


def test_what_is_remembered_of_a_no_is_what_keeps_it_from_being_asked_for_at_once() -> None:
    no = Acks(refused=Announcement(at=5.0, value="no"))
    over = Acks(answers={"t": LifecycleResult(at=5.0, result="refused")})
    rows: list[tuple[Action, Acks]] = [
        (HeartbeatLifecycle(NODE, "t", GROUP, "h", "t"), over),
        (TerminateInGroup(NODE, GROUP, True), no),
        (SuspendReplacement((NODE,), GROUP), no),
        (StopBase((NODE,), Reason.IDLE), no),
        (SetStatusTag((NODE,), "REMOVED", gone=True), Acks(mirror=Announcement(at=5.0, value="REMOVED"))),
        (SetStatusTag((NODE,), "REMOVED"), NO_ACKS),
        (CompleteLifecycle(NODE, "t", GROUP, "h", "t", "CONTINUE"), NO_ACKS),
        (StampOwner((NODE,), "demo"), NO_ACKS),
        (Protect((NODE,), GROUP), NO_ACKS),
        (Terminate((NODE,)), NO_ACKS),
    ]
    assert [acks_of_refusal(action, "no", 5.0) for action, _ in rows] == [acks for _, acks in rows]


def test_what_is_remembered_of_an_end_says_whether_its_place_went_with_it_and_for_what() -> None:
    for lowered in (True, False):
        done = acks_of_effect(TerminateInGroup(NODE, GROUP, lowered, closes=Reason.IDLE), 5.0)
        assert done.terminate == Termination(at=5.0, group=GROUP, lowered=lowered)
        assert done.closed == Announcement(at=5.0, value=Reason.IDLE)
    assert acks_of_effect(Terminate((NODE,)), 5.0) == Acks(terminate=Termination(at=5.0))
    assert acks_of_effect(StopBase((NODE,), Reason.IDLE), 5.0) == Acks(closed=Announcement(at=5.0, value=Reason.IDLE))
    assert acks_of_effect(SuspendReplacement((NODE,), GROUP), 5.0) == Acks(suspended={GROUP: Effect(at=5.0)})
    assert acks_of_effect(ResumeReplacement((NODE,), GROUP), 5.0) == Acks(resumed={GROUP: Effect(at=5.0)})
