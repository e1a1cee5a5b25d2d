"""Guards of the plan that must hold even if a status were wrong."""

from __future__ import annotations

from functools import reduce

import pytest
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.decisions.actions import (
    CompleteLifecycle,
    HeartbeatLifecycle,
    Protect,
    SetStatusTag,
    StampOwner,
    Terminate,
    acks_of_effect,
    instances,
)
from dyntrain.controller.core.decisions.status import Standing
from dyntrain.controller.core.planning import NodeStatus, plan_actions
from dyntrain.controller.core.records.acks import NO_ACKS, Acks, Announcement, Effect, LifecycleResult, Termination
from dyntrain.controller.core.records.facts import ClusterStatement, GroupRead, Hook, NodeFacts, StateRead, TagsRead
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.core.views.view import Rules, view
from fakes import ELASTIC, START

RULES = Rules(ClusterPolicy(cluster="demo", groups=("demo-workers",)), ELASTIC)
NODE = "i-00000001"


def node(tags: dict[str, str], standing: Standing, **facts: object) -> NodeStatus:
    read = NodeFacts(
        instance=NODE,
        tags_read=TagsRead(started=START, tags=tags),
        state_read=StateRead(started=START, state="running", launched_at=START - 900),
        **facts,
    )
    return NodeStatus(view(read, RULES, START), standing)


@pytest.mark.parametrize(
    "tags",
    [
        {"dyntrain:cluster": "demo", "dyntrain:base": "true"},
        {"dyntrain:cluster": "demo"},
        {"dyntrain:cluster": "other"},
        {},
    ],
)
def test_base_nodes_and_what_the_cluster_did_not_launch_are_never_terminated(tags: dict[str, str]) -> None:
    actions = plan_actions([node(tags, Standing("REMOVED", Reason.UNTAGGED))], RULES, START)
    assert not any(isinstance(action, Terminate) for action in actions)


def test_an_owned_node_that_was_removed_is_tagged_first_and_terminated_then() -> None:
    launched = ClusterStatement(at=START, cluster="demo")
    removed = node(
        {"dyntrain:cluster": "demo"}, Standing("REMOVED", Reason.UNTAGGED), template=launched, wished=launched
    )
    actions = plan_actions([removed], RULES, START)
    assert [type(action) for action in actions] == [SetStatusTag, Terminate]
    assert [instances(action) for action in actions] == [(NODE,), (NODE,)]


def test_a_new_member_of_a_group_is_stamped_before_anything_else_is_written_to_it() -> None:
    """The ownership tag is what the controller's permissions go by: without it the status is refused."""
    seen = GroupRead(started=START, group="demo-workers", phase="in_service")
    new = node({"demo:elastic": ""}, Standing("ADD_QUEUED", Reason.JOINING), group_read=seen)
    assert plan_actions([new], RULES, START) == (StampOwner((NODE,), "demo"), SetStatusTag((NODE,), "ADD_QUEUED"))


def test_a_status_that_people_are_not_told_in_tags_is_not_written() -> None:
    for standing in (Standing("WAITING", Reason.PREPARING), Standing("REMOVED", Reason.NEVER_ASKED)):
        assert plan_actions([node({}, standing)], RULES, START) == ()


def test_base_nodes_in_a_group_are_protected_from_scale_in() -> None:
    seen = GroupRead(started=START, group="demo-workers", phase="in_service")
    tags = {"dyntrain:cluster": "demo", "dyntrain:base": "true"}
    assert plan_actions([node(tags, Standing("ADDED", Reason.TRAINING), group_read=seen)], RULES, START) == (
        Protect((NODE,), "demo-workers"),
    )


def test_hooks_of_a_group_that_is_not_the_clusters_are_left_alone() -> None:
    hook = Hook(at=START - 999, group="web", hook="web-launch", transition="launch", token="t")
    seen = GroupRead(started=START, group="web", phase="launching")
    waiting = node(
        {"dyntrain:cluster": "demo"}, Standing("WAITING", Reason.PREPARING), hooks={"t": hook}, group_read=seen
    )
    assert plan_actions([waiting], RULES, START) == ()


def test_each_effect_on_a_node_is_remembered_in_a_field_of_its_own() -> None:
    """Two that shared one would overwrite each other, and be done again and again."""
    effects = (
        CompleteLifecycle(NODE, "t", "g", "h", "t", "ABANDON"),
        HeartbeatLifecycle(NODE, "t", "g", "h", "t"),
        SetStatusTag((NODE,), "ADDED"),
        StampOwner((NODE,), "demo"),
        Protect((NODE,), "g"),
        Terminate((NODE,)),
    )
    together = reduce(Acks.join, (acks_of_effect(effect, 5.0) for effect in effects), NO_ACKS)
    assert together == Acks(
        answers={"t": LifecycleResult(at=5.0, result="ABANDON")},
        heartbeats={"t": Effect(at=5.0)},
        mirror=Announcement(at=5.0, value="ADDED"),
        stamps={"demo": Effect(at=5.0)},
        protections={"g": Effect(at=5.0)},
        terminate=Termination(at=5.0),
    )
