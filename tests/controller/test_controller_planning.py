"""Guards of the plan that must hold even if a status were wrong."""

from __future__ import annotations

import pytest
from fakes import START, SUFFIX

from controller.actions import CompleteLifecycle, HeartbeatLifecycle, Protect, SetStatusTag, Terminate, acknowledgement, instances
from controller.contract import ClusterPolicy
from controller.facts import GroupRead, Hook, NodeFacts, StateRead, TagsRead
from controller.planning import Node, plan_actions
from controller.reasons import Reason
from controller.status import Standing
from controller.view import Rules, view

RULES = Rules(ClusterPolicy(cluster="demo", groups=("demo-workers",)), SUFFIX)
NODE = "i-00000001"


def node(tags: dict[str, str], standing: Standing, **facts: object) -> Node:
    read = NodeFacts(
        instance=NODE,
        tags_read=TagsRead(started=START, tags=tags),
        state_read=StateRead(started=START, state="running", launched_at=START - 900),
        **facts,
    )
    return Node(view(read, RULES, START), standing)


@pytest.mark.parametrize(
    "tags",
    [
        {"dyntrain:cluster": "demo", "dyntrain:base": "true"},
        {"dyntrain:cluster": "other"},
        {},
    ],
)
def test_base_nodes_and_what_the_cluster_did_not_launch_are_never_terminated(tags: dict[str, str]) -> None:
    actions = plan_actions([node(tags, Standing("REMOVED", Reason.UNTAGGED))], RULES, START)
    assert not any(isinstance(action, Terminate) for action in actions)


def test_an_owned_node_that_was_removed_is_tagged_first_and_terminated_then() -> None:
    actions = plan_actions([node({"dyntrain:cluster": "demo"}, Standing("REMOVED", Reason.UNTAGGED))], RULES, START)
    assert [type(action) for action in actions] == [SetStatusTag, Terminate]
    assert [instances(action) for action in actions] == [(NODE,), (NODE,)]  # type: ignore[arg-type]


def test_a_status_that_people_are_not_told_in_tags_is_not_written() -> None:
    for standing in (Standing("WAITING", Reason.PREPARING), Standing("REMOVED", Reason.NEVER_ASKED)):
        assert plan_actions([node({}, standing)], RULES, START) == ()


def test_base_nodes_in_a_group_are_protected_from_scale_in() -> None:
    seen = GroupRead(started=START, group="demo-workers", phase="in_service")
    tags = {"dyntrain:cluster": "demo", "dyntrain:base": "true"}
    assert plan_actions([node(tags, Standing("ADDED", Reason.TRAINING), group_read=seen)], RULES, START) == (Protect((NODE,), "demo-workers"),)


def test_hooks_of_a_group_that_is_not_the_clusters_are_left_alone() -> None:
    hook = Hook(at=START - 999, group="web", hook="web-launch", transition="launch", token="t")
    seen = GroupRead(started=START, group="web", phase="launching")
    waiting = node({"dyntrain:cluster": "demo"}, Standing("WAITING", Reason.PREPARING), hooks={"t": hook}, group_read=seen)
    assert plan_actions([waiting], RULES, START) == ()


def test_every_action_has_a_key_by_which_it_is_remembered() -> None:
    complete = CompleteLifecycle(NODE, "t", "g", "h", "t", "ABANDON")
    assert acknowledgement(complete) == ("complete:t", "ABANDON")
    assert acknowledgement(HeartbeatLifecycle(NODE, "t", "g", "h", "t")) == ("heartbeat:t", "")
    assert acknowledgement(SetStatusTag((NODE,), "ADDED")) == ("mirror", "ADDED")
