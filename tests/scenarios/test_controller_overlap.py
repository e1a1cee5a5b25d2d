"""Passes of one cluster that overlap, records that come out of order, and what one pass leaves to another (C37)."""

from __future__ import annotations

from dyntrain.controller.adapters.items import wake_of
from dyntrain.controller.contract.errors import Refused
from dyntrain.controller.contract.messages import STATUS_TAG
from dyntrain.controller.loops.converge import converge
from fakes import ELASTIC, World, running_cluster


def another_pass_for(world: World, node: str) -> None:
    """A whole pass for a node that is tagged and prepared, while one of ours is under way."""
    world.take_in(world.tag(node), world.report(node))
    theirs, world.stream = world.stream, []
    converge(world.ports, world.registry, wake_of(theirs), ELASTIC)


def test_c37_two_overlapping_passes_grow_the_revision_once_a_change_and_agree() -> None:
    world, _, _ = running_cluster(0)
    first, second = world.launch(1), world.launch(2)
    world.take_in(world.tag(first), world.report(first))
    ours, world.stream = world.stream, []
    world.take_in(world.tag(second), world.report(second))
    theirs, world.stream = world.stream, []
    before = world.target().revision
    world.before["clusters.put"] = [lambda: converge(world.ports, world.registry, wake_of(theirs), ELASTIC)]
    converge(world.ports, world.registry, wake_of(ours), ELASTIC)
    assert set(world.target().members) >= {first, second}
    assert before < world.target().revision <= before + 2


def test_c37_the_slower_of_two_publishers_leaves_the_newest_revision_in_the_parameter() -> None:
    world, _, _ = running_cluster(0)
    first, second = world.launch(1), world.launch(2)
    world.take_in(world.tag(first), world.report(first))
    ours, world.stream = world.stream, []

    world.before["parameters.put_target"] = [lambda: another_pass_for(world, second)]
    converge(world.ports, world.registry, wake_of(ours), ELASTIC)
    assert world.target().revision == world.ports.clusters.get("demo").membership.revision
    assert {first, second} <= set(world.target().members)


def test_c37_an_index_that_lags_does_not_drop_a_member() -> None:
    world, _, (worker,) = running_cluster(1)
    node = world.ports.nodes.get(worker)
    assert node is not None
    old = node.facts.model_copy(update={"preparation": None})
    world.ports.nodes.lagging[worker] = type(node)(old, node.version - 1)  # type: ignore[attr-defined]
    revision = world.target().revision
    other = world.launch(8)
    world.hear(world.tag(other), world.report(other))
    assert worker in world.target().members
    assert world.target().revision == revision + 1


def test_a_pass_leaves_the_others_nodes_to_the_passes_of_their_own_records() -> None:
    """In a burst most passes see most nodes: each is acknowledged once, not once a pass, and none is forgotten."""
    world, _, _ = running_cluster(0)
    nodes = [world.launch(number, elastic=False, owned=False) for number in range(1, 6)]
    for node in nodes:
        world.hear(world.report(node))
    puts, asked = world.count("nodes.put"), world.count("instances.by_id")
    world.take_in(*(world.tag(node) for node in nodes))
    batches, world.stream = [[record] for record in world.stream if record["NewImage"]["wake"]["BOOL"]], []
    taken_in = world.count("nodes.put")
    for number, batch in enumerate(batches, 1):
        converge(world.ports, world.registry, wake_of(batch), ELASTIC)
        assert world.count("nodes.put") == taken_in + number
        assert [world.mirror(node) for node in nodes] == ["ADD_QUEUED"] * number + [None] * (5 - number)
    assert taken_in == puts + 5
    assert world.count("instances.by_id") == asked
    assert world.count("parameters.put_target") <= 3, "the first pass already counts all of them as members"


def test_nodes_that_nobody_was_told_of_wait_for_their_own_record_or_the_tick() -> None:
    """A restored table has no stream: that costs a period, and does not make every other pass read and acknowledge the
    whole cluster.
    """
    world, _, _ = running_cluster(0)
    silent, node = world.launch(1), world.launch(2)
    world.take_in(world.report(silent))
    known = world.ports.nodes.get(silent)
    assert known is not None
    world.ports.nodes.put(known, wake=False, expires=None)
    world.stream = []
    world.hear(world.tag(node), world.report(node))
    assert [call for call in world.calls if call[0] == "instances.by_id"][1:] == [], "only the master was asked for"
    known = world.ports.nodes.get(silent)
    assert known is not None
    assert known.facts.acks.status is None
    world.resync()
    known = world.ports.nodes.get(silent)
    assert known is not None
    assert known.facts.acks.status.value.startswith("ADD_QUEUED")


def test_a_publisher_that_was_overtaken_does_not_write_the_parameter_again() -> None:
    world, _, _ = running_cluster(0)
    first, second = world.launch(1), world.launch(2)
    world.take_in(world.tag(first), world.report(first))
    ours, world.stream = world.stream, []

    puts = world.count("parameters.put_target")
    # between the decision of the slower pass and its publication
    world.before["clusters.get"] = [
        lambda: None,
        lambda: another_pass_for(world, second),
    ]
    converge(world.ports, world.registry, wake_of(ours), ELASTIC)
    assert world.count("parameters.put_target") == puts + 1
    assert {first, second} <= set(world.target().members)


def test_c37_a_pass_that_was_overtaken_does_not_leave_an_old_status_on_a_terminated_instance() -> None:
    world, master, (worker,) = running_cluster(1)
    world.take_in(world.tag(worker, present=False))
    records, world.stream = world.stream, []

    def overtake() -> None:
        """The worker leaves and is terminated while the pass that queued its removal hesitates to write the tag."""
        world.wait(1)
        world.hear(world.job_event(master, revision=world.target().revision))
        world.hear(world.state_event(worker, "terminated"))
        world.wait(1)

    world.before["instances.tag"] = [overtake]
    world.wait(1)
    converge(world.ports, world.registry, wake_of(records), ELASTIC)
    assert world.machines[worker].tags[STATUS_TAG] == "REMOVAL_QUEUED", "the overtaken pass came last"
    world.resync()
    assert world.machines[worker].tags[STATUS_TAG] == "REMOVED"


def test_the_last_tag_of_an_instance_whose_tags_are_gone_already_is_not_tried_for_ever() -> None:
    world, _, (worker,) = running_cluster(1)
    world.failing["instances.tag"] = [Refused("UnauthorizedOperation", "the instance carries no tag any more")]
    before = world.count("instances.tag")
    world.hear(world.state_event(worker, "terminated"))
    world.resync()
    world.resync()
    assert world.status(worker) == "GONE"
    assert world.count("instances.tag") == before + 1
