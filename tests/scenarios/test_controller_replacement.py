"""T22, the controller's part: a base node is replaced on purpose. If this is wrong a replaced machine goes on costing,
or its servers go too soon.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from dyntrain.controller.cli.answers.connection import Connection
from dyntrain.controller.cli.changing.asking import carry_out_unless_dry_run, replacement_request
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.contract.errors import GiveUp, Refused
from dyntrain.controller.contract.messages import BASE_TAG, ClusterPolicy
from dyntrain.controller.core.decisions.replacement import planned_replacements
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.core.views.view import Rules, View
from fakes import ELASTIC, World

RULES = Rules(ClusterPolicy(cluster="demo"))


def cluster(**policy: int) -> tuple[World, str, str, str]:
    """A master, a base worker and an elastic worker of the cluster's group, all of them ADDED."""
    world = World(**policy)
    master = world.launch(1, base=True, NodeType="Master")
    old = world.launch(2, base=True, NodeType="Worker")
    new = world.member(3, phase="in_service")
    world.resync()
    world.hear(*(world.report(node) for node in (master, old, new)))
    world.hear(world.tag(new))
    trains(world, master, old, new)
    return world, master, old, new


def trains(world: World, *members: str) -> None:
    world.hear(world.job_event(*members, revision=world.target().revision))


def ask(world: World, old: str, new: str) -> str:
    return carry_out_unless_dry_run(
        world.ports,
        replacement_request(Connection(world.ports, world.registry, ELASTIC), old, new),
        dry_run=False,
        say_where=print,
    )


def seen(world: World) -> None:
    """The periodic read, when what was read last has settled."""
    world.wait(30)
    world.resync()


def test_t22_the_old_base_node_leaves_at_the_boundary_and_only_then_is_released() -> None:
    world, master, old, new = cluster()
    revision = world.target().revision
    ask(world, old, new)
    seen(world)
    trains(world, master, old, new)
    target = world.target()
    assert (target.members, target.replacing) == ((master, new), {old: new})
    assert target.revision == revision + 1, "one change, so one boundary"
    assert ("groups.protect", "demo-workers", new) in world.calls, "the protection from scale-in moves too"
    assert world.standing(old) == ("REMOVAL_QUEUED", "LEAVES_AT_BOUNDARY")
    assert world.count("instances.terminate") == 0
    trains(world, master, new)
    assert world.mirror(old) == "REMOVED"
    assert ("instances.terminate", old) in world.calls
    world.hear(world.state_event(old, "terminated"))
    assert (world.target().members, world.target().replacing) == ((master, new), {})


def test_t22_the_successor_gets_the_base_nodes_instance_profile_before_its_tag() -> None:
    """Else it would take the job over one day, and could not tell anybody where."""
    world, master, old, new = cluster()
    for node, profile in ((master, "base"), (old, "base"), (new, "worker")):
        world.machines[node].profile = profile
    world.failing["instances.give_profile"] = [Refused("UnauthorizedOperation", "you may not pass this role")]
    with pytest.raises(Refused, match="pass this role"):
        ask(world, old, new)
    assert BASE_TAG not in world.machines[new].tags
    output = ask(world, old, new)
    assert (world.machines[new].profile, world.machines[new].tags[BASE_TAG]) == ("base", old)
    assert "replace-iam-instance-profile-association" in output
    ask(world, old, new)
    assert world.count("instances.give_profile") == 2, "what it has it is not given again"
    world.machines[new].profile, world.machines[old].profile = None, None
    assert "aws ec2 associate-iam-instance-profile" in ask(world, old, new), "it has none that could be replaced"
    assert world.machines[new].profile == "base", "one that was tagged by hand gets it from any base node"


def test_t22_asked_twice_and_read_twice_it_is_the_same() -> None:
    world, master, old, new = cluster()
    ask(world, old, new)
    ask(world, old, new)
    seen(world)
    trains(world, master, old, new)
    revision = world.target().revision
    ask(world, old, new)
    seen(world)
    assert world.target().revision == revision
    assert world.machines[new].tags[BASE_TAG] == old


def test_t22_a_successor_that_dies_before_the_boundary_leaves_the_old_node_in_its_place() -> None:
    world, master, old, new = cluster()
    ask(world, old, new)
    seen(world)
    trains(world, master, old, new)
    world.hear(world.state_event(new, "terminated"))
    assert (world.target().members, world.target().replacing) == ((master, old), {})
    trains(world, master, old)
    assert world.standing(old)[0] == "ADDED"
    assert world.count("instances.terminate") == 0


def test_t22_what_becomes_of_the_successor_later_does_not_bring_the_old_node_back() -> None:
    """Its machine may not be the cluster's to end: it must not be a base node again when the successor reboots."""
    world, master, old, new = cluster()
    world.machines[old].tags.pop("dyntrain:cluster")
    world.machines[old].tags[ELASTIC_TAG.of("demo")] = ""
    seen(world)
    ask(world, old, new)
    seen(world)
    trains(world, master, old, new)
    trains(world, master, new)
    assert world.count("instances.terminate") == 0
    world.hear(world.state_event(new, "terminated"))
    assert world.target().members == (master,)
    assert world.standing(old) == ("REMOVED", "REPLACED")


def test_t22_while_the_coordinator_is_silent_the_old_node_is_not_terminated() -> None:
    """Its ps-lite servers may be in use: a lost report must not cost the job a restart."""
    world, master, old, new = cluster()
    ask(world, old, new)
    seen(world)
    world.wait(31)
    world.resync()
    assert world.standing(old) == ("REMOVAL_QUEUED", "LEAVE_UNCONFIRMED")
    assert world.count("instances.terminate") == 0
    trains(world, master, new)
    assert world.count("instances.terminate") == 1


def test_t22_a_base_node_that_is_dead_already_is_replaced_all_the_same() -> None:
    world, master, old, new = cluster()
    world.hear(world.state_event(old, "terminated"))
    ask(world, old, new)
    seen(world)
    assert world.decision().membership.members == (master, new)
    assert ("groups.protect", "demo-workers", new) in world.calls
    assert world.status(old) == "GONE"


def test_t22_a_stopped_base_node_is_replaced_and_released() -> None:
    world, master, old, new = cluster()
    world.hear(world.state_event(old, "stopped"))
    world.machines[old].state = "stopped"
    ask(world, old, new)
    seen(world)
    trains(world, master, new)
    assert ("instances.terminate", old) in world.calls


def test_t22_the_coordinators_node_stays_until_another_is_nominated() -> None:
    """Also when the tag is written without the command: the coordinator would go with its machine, and the job back to
    its last commit.
    """
    world, master, old, new = cluster()
    with pytest.raises(GiveUp, match="runs the coordinator"):
        ask(world, master, new)
    world.machines[new].tags[BASE_TAG] = master
    seen(world)
    trains(world, master, old, new)
    assert master in world.target().members
    world.hear(world.state_event(master, "stopped"))
    trains(world, old, new)
    world.resync()
    assert world.target().coordinator == old
    assert master not in world.target().members


def test_t22_what_cannot_be_is_refused_with_what_to_do_and_nothing_is_written() -> None:
    world, _, old, new = cluster()
    fresh, other, gone = world.launch(5), world.launch(6), world.launch(7)
    world.hear(
        world.tag(fresh),
        world.tag(other),
        world.report(other),
        world.tag(gone),
        world.report(gone),
        world.state_event(gone, "terminated"),
    )
    third = world.launch(8, base=True)
    world.resync()
    cases = {
        (old, old): "cannot replace itself",
        (old, "i-0bbbbbbbbbbbbbbb2"): "the controller does not know i-0bbbbbbbbbbbbbbb2",
        ("i-0bbbbbbbbbbbbbbb2", new): "nothing is known of i-0bbbbbbbbbbbbbbb2 in the cluster of",
        (other, new): "no base node",
        (old, fresh): "is not prepared",
        (old, gone): "is terminated",
        (old, third): "is a base node already",
    }
    for (one, two), message in cases.items():
        with pytest.raises(GiveUp, match=message):
            ask(world, one, two)
    assert [call for call in world.calls if call[:2] == ("instances.tag", BASE_TAG)] == []
    ask(world, old, new)
    seen(world)
    with pytest.raises(GiveUp, match="by another node already"):
        ask(world, old, other)


def test_t22_below_the_minimum_nobody_is_given_up() -> None:
    world, master, old, new = cluster(min_workers=3)
    with pytest.raises(GiveUp, match="min_workers"):
        ask(world, old, new)
    world.machines[new].tags[BASE_TAG] = old
    seen(world)
    assert world.target().members == (master, old, new)


def test_t22_nodes_that_replace_each_other_in_a_ring_all_stay() -> None:
    world, _, old, new = cluster()
    views = {node.view.instance: node.view for node in world.decision().nodes}
    ring = [based(views[old], new), based(views[new], old)]
    assert planned_replacements(ring, Membership(term=1), None, RULES) == {}
    heard: JobFacts | None = None
    assert planned_replacements([views[old], based(views[new], old)], Membership(term=1), heard, RULES) == {old: new}


def based(node: View, value: str) -> View:
    return replace(node, base=True, tags={**(node.tags or {}), BASE_TAG: value})
