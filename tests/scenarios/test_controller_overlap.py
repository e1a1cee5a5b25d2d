"""Passes of one cluster that overlap, records that come out of order, and what one pass leaves to another (C37)."""

from __future__ import annotations

import pytest
from dyntrain.controller.adapters.items import wake_of
from dyntrain.controller.contract.errors import Refused, RetryLater
from dyntrain.controller.contract.messages import STATUS_TAG
from dyntrain.controller.loops.converge import converge
from dyntrain.controller.loops.ports import Wake
from dyntrain.controller.loops.turns import TURN_SECONDS, StatusLock
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
    puts, reads = world.count("nodes.put"), world.count("instances.by_id")
    world.take_in(*(world.tag(node) for node in nodes))
    batches, world.stream = [[record] for record in world.stream if record["NewImage"]["wake"]["BOOL"]], []
    taken_in = world.count("nodes.put")
    for number, batch in enumerate(batches, 1):
        converge(world.ports, world.registry, wake_of(batch), ELASTIC)
        assert world.count("nodes.put") == taken_in + number
        assert [world.mirror(node) for node in nodes] == ["ADD_QUEUED"] * number + [None] * (5 - number)
    assert taken_in == puts + 5
    assert world.count("instances.by_id") == reads
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
    assert statuses_written(world, worker)[-2:] == ["REMOVAL_QUEUED", "REMOVED"], (
        "those that came by left it to the pass"
    )


def statuses_written(world: World, instance: str) -> list[str]:
    return [call[2] for call in world.calls if call[:2] == ("instances.tag", STATUS_TAG) and instance in call[3:]]


def test_a_pass_that_comes_to_its_turn_late_tells_what_is_so_then() -> None:
    """It has read that the worker is being taken in, and stands still until another pass has told that it is in."""
    world, master, _ = running_cluster(0)
    worker = world.launch(1)
    world.hear(world.tag(worker), world.report(worker))
    world.wait(1)
    revision = world.target().revision
    world.take_in(world.job_event(master, forming=[worker], revision=revision))
    records, world.stream = world.stream, []
    world.before["clusters.turn"] = [lambda: world.hear(world.job_event(master, worker, revision=revision))]
    converge(world.ports, world.registry, wake_of(records), ELASTIC)
    lines = [entry["after"] for entry in world.trail if entry.get("instance") == worker and "after" in entry]
    assert lines == ["ADD_QUEUED WAITS_FOR_BOUNDARY", "ADDED TRAINING"]
    assert statuses_written(world, worker) == ["ADD_QUEUED", "ADDED"]


def test_what_is_told_of_a_node_is_told_by_the_table_and_not_by_an_index_that_lags() -> None:
    """The index still shows that it waits to join, and the job that it is in; it was let go since."""
    world, master, _ = running_cluster(0)
    worker = world.launch(1)
    world.hear(world.tag(worker), world.report(worker))
    old = world.ports.nodes.get(worker)
    world.wait(1)
    world.hear(world.job_event(master, worker, revision=world.target().revision))
    world.wait(1)
    world.hear(world.tag(worker, present=False))
    world.ports.nodes.lagging[worker] = old  # type: ignore[attr-defined]
    converge(world.ports, world.registry, Wake(ticked=frozenset({"demo"})), ELASTIC)
    assert statuses_written(world, worker) == ["ADD_QUEUED", "ADDED", "REMOVAL_QUEUED"]


def test_a_turn_that_has_lasted_too_long_is_over_and_its_tags_are_not_written_any_more() -> None:
    world, master, (worker,) = running_cluster(1)
    world.take_in(world.tag(worker, present=False))
    records, world.stream = world.stream, []

    def stands_still() -> None:
        world.wait(TURN_SECONDS + 1)
        world.hear(world.job_event(master, worker, revision=2), world.tag(worker))
        world.hear(world.job_event(master, worker, revision=world.target().revision))

    world.before["instances.tag"] = [stands_still]
    with pytest.raises(RetryLater):
        converge(world.ports, world.registry, wake_of(records), ELASTIC)
    assert world.mirror(worker) == "ADDED"
    world.stream += records
    world.settle()
    assert world.mirror(worker) == "ADDED", "delivered again, it reads what is so by then"
    assert world.status(worker) == "ADDED"


def test_what_others_left_to_a_run_that_died_is_seen_to_by_the_next_one() -> None:
    world, _, workers = running_cluster(2)
    world.resync()
    world.wait(1)
    world.take_in(world.tag(workers[0], present=False))
    records, world.stream = world.stream, []

    def left_to_it() -> None:
        world.hear(world.tag(workers[1], present=False))
        raise RetryLater("EC2 is away")

    world.before["instances.tag"] = [left_to_it]
    with pytest.raises(RetryLater):
        converge(world.ports, world.registry, wake_of(records), ELASTIC)
    assert [world.mirror(worker) for worker in workers] == ["ADDED", "ADDED"]
    converge(world.ports, world.registry, wake_of(records), ELASTIC)
    assert [world.mirror(worker) for worker in workers] == ["REMOVAL_QUEUED", "REMOVAL_QUEUED"]


def test_who_reports_while_a_run_is_slow_was_not_silent() -> None:
    """A call that is throttled for half a minute, after the run has read the job."""
    world, _, (worker,) = running_cluster(1)
    world.before["clusters.get"] = [lambda: world.wait(31)]
    converge(world.ports, world.registry, Wake(ticked=frozenset({"demo"})), ELASTIC)
    assert statuses_written(world, worker) == ["ADD_QUEUED", "ADDED"]


def test_the_last_tag_of_an_instance_whose_tags_are_gone_already_is_not_tried_for_ever() -> None:
    world, _, (worker,) = running_cluster(1)
    world.failing["instances.tag"] = [Refused("UnauthorizedOperation", "the instance carries no tag any more")]
    before = world.count("instances.tag")
    world.hear(world.state_event(worker, "terminated"))
    world.resync()
    world.resync()
    assert world.status(worker) == "GONE"
    assert world.count("instances.tag") == before + 1


def test_who_was_in_the_target_for_a_moment_is_not_ended_before_the_job_has_let_it_go() -> None:
    """The pass has read the membership before others put the node into it and took it out again, and the node after
    that: taken together it looks like one that never was in the job.
    """
    world, _, _ = running_cluster(0)
    node = world.launch(7)
    world.take_in(world.tag(node))
    records, world.stream = world.stream, []

    def in_and_out() -> None:
        world.hear(world.report(node))
        assert node in world.target().members
        world.hear(world.tag(node, present=False))

    world.before["nodes.get_many"] = [lambda: None, in_and_out]
    converge(world.ports, world.registry, wake_of(records), ELASTIC)
    assert statuses_written(world, node) == ["REMOVAL_QUEUED"]
    assert world.count("instances.terminate") == 0


def test_a_run_whose_turn_is_over_does_not_end_that_of_another() -> None:
    """It stands still at the end of its own; a third one would find nobody at it, and write beside the second."""
    world, _, _ = running_cluster(1)
    first, second, third = (StatusLock(world.ports, "demo") for _ in range(3))
    assert first.take_lock((), wanted=True)
    world.wait(TURN_SECONDS)
    assert second.take_lock((), wanted=True)
    assert first.release_lock(done=True) == frozenset()
    assert not third.take_lock(["i-1"], wanted=True)
    assert second.release_lock(done=True) == {"i-1"}
    assert third.take_lock((), wanted=True)


def test_who_comes_to_tell_after_its_turn_tells_nothing() -> None:
    """The log and the audit trail have no time after which they are not written."""
    world, master, (worker,) = running_cluster(1)
    world.hear(world.tag(worker, present=False))
    world.wait(1)
    world.take_in(world.job_event(master, worker, revision=world.target().revision, generation=2))
    records, world.stream = world.stream, []
    world.take_in(world.tag(worker))
    entries = len(world.trail)
    world.before["clusters.put"] = [lambda: world.wait(TURN_SECONDS)]
    with pytest.raises(RetryLater, match="this run's turn"):
        converge(world.ports, world.registry, wake_of(records), ELASTIC)
    assert len(world.trail) == entries


def test_who_has_nothing_to_tell_leaves_its_news_to_the_one_that_tells_what_was_before() -> None:
    """Tagged again, the worker is as people were told; the pass in its turn is about to tell that it leaves."""
    world, _, (worker,) = running_cluster(1)
    world.wait(1)
    world.take_in(world.tag(worker, present=False))
    records, world.stream = world.stream, []
    world.before["clusters.put"] = [lambda: world.hear(world.tag(worker))]
    converge(world.ports, world.registry, wake_of(records), ELASTIC)
    assert statuses_written(world, worker)[-2:] == ["REMOVAL_QUEUED", "ADD_QUEUED"]
    assert worker in world.target().members, "not at the next resync"
