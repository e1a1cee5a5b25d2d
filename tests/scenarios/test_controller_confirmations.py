"""What would change the target, take the coordinator away or end a machine is confirmed by consistent reads first.

The index that a pass begins with may be a moment old: each of these says something that was true until just before.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dyntrain.controller.core.records.facts import NodeFacts
from dyntrain.controller.loops.converge import converge
from dyntrain.controller.loops.ports import StoredNode, Wake
from fakes import ELASTIC, World, running_cluster


def remembered(world: World, node: str) -> StoredNode:
    stored = world.ports.nodes.get(node)
    assert stored is not None
    return stored


def index_lags(world: World, node: str, news: Callable[[], object]) -> None:
    """`news` of the node are in the table, and the index still shows how it was before."""
    before = remembered(world, node)
    news()
    world.stream = []
    assert remembered(world, node).version > before.version
    world.ports.nodes.lagging[node] = before  # type: ignore[attr-defined]


def one_pass(world: World) -> None:
    converge(world.ports, world.registry, Wake(clusters=frozenset({"demo"})), ELASTIC)


def test_who_has_just_lost_its_tag_does_not_join() -> None:
    world, _, _ = running_cluster(1)
    node = world.launch(5)
    world.take_in(world.tag(node), world.report(node))
    world.stream = []
    index_lags(world, node, lambda: world.take_in(world.tag(node, present=False)))
    one_pass(world)
    assert node not in world.target().members


def test_who_has_just_got_its_tag_back_does_not_leave() -> None:
    world, _, (worker,) = running_cluster(1)
    world.take_in(world.tag(worker, present=False))
    index_lags(world, worker, lambda: world.take_in(world.tag(worker)))
    one_pass(world)
    assert worker in world.target().members


def test_who_is_not_in_the_index_at_all_does_not_leave() -> None:
    """An index gets what is new last; and a member that nobody shows would be one that nobody wants."""
    world, _, (worker,) = running_cluster(1)
    nowhere = StoredNode(NodeFacts(instance=worker), remembered(world, worker).version - 1)
    world.ports.nodes.lagging[worker] = nowhere  # type: ignore[attr-defined]
    revision = world.target().revision
    one_pass(world)
    assert (worker in (world.target().members or ()), world.target().revision) == (True, revision)


@pytest.mark.parametrize("grouped", [False, True])
def test_who_has_just_got_its_tag_back_is_not_ended(grouped: bool) -> None:
    """It has left already. EC2 does not show it just now, so that the table alone can tell."""
    world, master, _ = running_cluster(1)
    node = world.member(5, phase="in_service") if grouped else world.launch(5)
    world.resync()
    world.hear(world.tag(node), world.report(node))
    world.hear(world.tag(node, present=False))
    assert node not in (world.target().members or ()), "what happens to it is no change of the target any more"
    world.take_in(world.job_event(master, revision=99))
    world.hidden.add(node)
    index_lags(world, node, lambda: world.take_in(world.tag(node)))
    one_pass(world)
    assert world.machines[node].state == "running"
    assert not [call for call in world.calls if call[0] in ("instances.terminate", "groups.terminate")]


def test_of_several_that_are_ended_in_one_call_each_is_confirmed() -> None:
    world, master, _ = running_cluster(1)
    nodes = [world.launch(number) for number in (5, 6, 7)]
    world.resync()
    for node in nodes:
        world.hear(world.tag(node), world.report(node))
        world.hear(world.tag(node, present=False))
    world.take_in(world.job_event(master, revision=99))
    world.hidden.update(nodes)
    index_lags(world, nodes[1], lambda: world.take_in(world.tag(nodes[1])))
    one_pass(world)
    (ended,) = [call[1:] for call in world.calls if call[0] == "instances.terminate"]
    assert set(ended) == {nodes[0], nodes[2]}


def two_base_nodes() -> tuple[World, str, str]:
    world, master, _ = running_cluster(0)
    other = world.launch(2000, base=True)
    world.hear(world.report(other))
    world.resync()
    world.hear(world.job_event(master, other, revision=world.target().revision))
    assert world.target().coordinator == master
    return world, master, other


def test_a_coordinator_whose_machine_has_just_come_back_keeps_the_job() -> None:
    world, master, _ = two_base_nodes()
    world.take_in(world.state_event(master, "stopping"))
    world.wait(1)
    index_lags(world, master, lambda: world.take_in(world.state_event(master, "running")))
    one_pass(world)
    assert world.target().coordinator == master


def test_a_base_node_whose_machine_has_just_been_stopped_is_not_nominated() -> None:
    world, master, other = two_base_nodes()
    index_lags(world, other, lambda: world.take_in(world.state_event(other, "stopping")))
    world.wait(world.rules().policy.takeover_seconds + 60)
    one_pass(world)
    assert world.target().coordinator == master


def test_what_is_newer_in_the_pass_than_in_the_table_is_not_lost_by_the_confirmation() -> None:
    """Another node's note, which came with the consistent read, and what the pass itself has just read, both count."""
    world, _, (worker,) = running_cluster(1)
    world.take_in(world.tag(worker, present=False))
    index_lags(world, worker, lambda: world.take_in(world.report(worker, "worker_failed", attempt=2)))
    one_pass(world)
    assert worker not in world.target().members
    facts: NodeFacts = remembered(world, worker).facts
    assert facts.preparation is not None
    assert (facts.preparation.outcome, facts.acks.status is not None) == ("worker_failed", True)
