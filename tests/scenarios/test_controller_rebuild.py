"""A controller that comes back with an empty table, or an old one, under a job that runs: it forgets nothing aloud."""

from __future__ import annotations

import pytest
from dyntrain.controller.contract.errors import RetryLater
from dyntrain.controller.contract.messages import Target
from dyntrain.controller.core.views.target import Membership, membership_above
from fakes import World, instance_id, running_cluster


def forget(world: World) -> None:
    """As destroying and deploying the controller's stack does; EC2, Auto Scaling and SSM stay."""
    world.table.clear()
    world.stream.clear()
    world.pending.clear()


def published(world: World) -> list[int]:
    return [int(call[2]) for call in world.calls if call[0] == "parameters.put_target"]


def test_nothing_is_published_or_ended_before_the_job_was_heard_and_then_nothing_has_changed() -> None:
    world, master, workers = running_cluster(3)
    before = world.target()
    forget(world)
    world.calls.clear()
    for _ in range(3):
        world.wait(30)
        world.resync()
    assert world.target() == before
    world.hear(world.job_event(master, *workers, revision=before.revision))
    world.resync()
    assert (world.target().members, world.target().revision) == (before.members, before.revision)
    assert published(world) == []
    assert world.count("instances.terminate") == 0
    assert {world.status(node) for node in workers} == {"ADDED"}
    assert [entry["revision"] for entry in world.trail if entry["kind"] == "rebuilt"] == [str(before.revision)]


def test_every_field_of_the_target_is_taken_over() -> None:
    world, master, workers = running_cluster(2)
    world.resync()
    before = world.target()
    live = before.model_copy(
        update={
            "leave_by": {workers[1]: world.now + 60.0},
            "replacing": {"i-00000000000000777": master},
            "coordinator": master,
            "term": 77,
            "members": (master, workers[0]),
        }
    )
    target = Target.of(9, live.members or (), live.leave_by).model_copy(
        update={"coordinator": master, "term": 77, "replacing": live.replacing}
    )
    world.parameters["/dyntrain/demo/target"] = target.model_dump_json()
    forget(world)
    world.resync()
    membership = world.ports.clusters.get("demo").membership
    assert membership.target == target
    assert membership.leaving == {workers[1]: 9}


def test_a_finished_job_stays_finished() -> None:
    world, master, workers = running_cluster(1)
    world.hear(world.job_event(master, *workers, revision=1, state="finished"))
    before = world.target()
    assert before.finished
    forget(world)
    for _ in range(5):
        world.wait(60)
        world.resync()
    assert world.target() == before


def test_who_was_asked_to_leave_trains_on_until_its_boundary() -> None:
    world, master, (stays, leaves) = running_cluster(2)
    world.hear(world.tag(leaves, present=False))
    assert world.status(leaves) == "REMOVAL_QUEUED"
    forget(world)
    world.wait(30)
    world.resync()
    world.hear(world.job_event(master, stays, leaves, revision=world.target().revision))
    world.resync()
    assert world.status(leaves) == "REMOVAL_QUEUED"
    assert world.count("instances.terminate") == 0
    world.hear(world.job_event(master, stays, revision=world.target().revision))
    assert ("instances.terminate", leaves) in world.calls


def test_a_reading_that_failed_rebuilds_nothing() -> None:
    world, master, workers = running_cluster(2)
    before = world.target()
    forget(world)
    world.failing["instances.tagged"] = [RetryLater("Throttling")]
    world.resync()
    world.hear(world.job_event(master, *workers, revision=before.revision))
    assert world.ports.clusters.get("demo").version == 0
    assert world.target() == before
    world.resync()
    assert world.ports.clusters.get("demo").version > 0
    assert world.target() == before


def test_a_coordinator_that_is_lost_too_is_not_waited_for_for_ever() -> None:
    world, _, workers = running_cluster(1)
    before = world.target()
    forget(world)
    world.resync()
    world.wait(130)
    newcomer = world.launch(9)
    world.hear(world.tag(newcomer), world.report(newcomer))
    world.resync()
    assert set(world.target().members or ()) == {*(before.members or ()), newcomer}
    assert world.target().revision == before.revision + 1
    assert workers[0] in (world.target().members or ())


def test_a_list_that_only_the_table_held_is_taken_from_the_job_at_a_revision_of_its_own() -> None:
    world, master, workers = running_cluster(3)
    before = world.target()
    world.parameters["/dyntrain/demo/target"] = before.model_copy(
        update={"members": None, "pointer": "cluster#demo/target"}
    ).model_dump_json()
    forget(world)
    world.resync()
    assert published(world)[-1] == before.revision
    world.hear(world.job_event(master, *workers, revision=before.revision))
    world.resync()
    assert set(world.target().members or ()) == {master, *workers}
    assert world.target().revision > before.revision


def test_a_tag_that_says_no_makes_no_base_node_of_a_list_that_is_made_again() -> None:
    world, master, (worker,) = running_cluster(1)
    world.machines[worker].tags["dyntrain:base"] = "false"
    said_no = world.launch(50, elastic=False, **{"dyntrain:base": "no"})
    before = world.target()
    world.parameters["/dyntrain/demo/target"] = before.model_copy(
        update={"members": None, "pointer": "cluster#demo/target"}
    ).model_dump_json()
    forget(world)
    for _ in range(4):
        world.resync()
        world.wait(70)
    assert set(world.target().members or ()) == {master, worker}
    stored = world.ports.nodes.get(said_no)
    assert stored is None or stored.facts.preparation is None, "nobody believes that it was in the target"


def test_a_list_that_only_the_table_held_is_never_taken_to_be_empty_when_the_job_stays_silent() -> None:
    """A coordinator that lives and is not heard would obey it, and let every worker go."""
    world, master, workers = running_cluster(3)
    before = world.target()
    world.parameters["/dyntrain/demo/target"] = before.model_copy(
        update={"members": None, "pointer": "cluster#demo/target"}
    ).model_dump_json()
    forget(world)
    for _ in range(3):
        world.resync()
        world.wait(70)
    world.resync()
    assert set(world.target().members or ()) == {master, *workers}
    assert world.target().revision > before.revision
    assert world.count("instances.terminate") == 0


@pytest.mark.parametrize("text", ["{", '{"revision": -1}'])
def test_a_target_that_cannot_be_read_is_not_overwritten(text: str) -> None:
    world, master, workers = running_cluster(1)
    world.parameters["/dyntrain/demo/target"] = text
    forget(world)
    world.resync()
    world.hear(world.job_event(master, *workers, revision=4))
    assert world.parameters["/dyntrain/demo/target"] == text
    assert ("GivenUp", "demo", 1) in world.metrics


def test_a_table_from_a_backup_goes_on_above_what_was_published_since() -> None:
    world, master, workers = running_cluster(1)
    backup = dict(world.table)
    newcomer = world.launch(5)
    world.hear(world.tag(newcomer), world.report(newcomer))
    later = world.target()
    world.table = {key: (value, version + 100) for key, (value, version) in backup.items()}
    world.resync()
    assert world.target().revision > later.revision
    assert {master, *workers} <= set(world.target().members or ())
    assert world.metrics.count(("TargetDisputed", "demo", 1)) == 1
    world.resync()
    assert world.metrics.count(("TargetDisputed", "demo", 1)) == 1


def test_a_table_from_a_backup_keeps_the_coordinator_that_was_nominated_since() -> None:
    """The one before would be believed instead: the job that runs would be refused, and taken from its coordinator."""
    before, since = instance_id(1), instance_id(2)
    old = Membership(revision=5, members=(before, since), coordinator=before, term=1000)
    target = Target.of(9, old.members).model_copy(update={"coordinator": since, "term": 2000})
    assert membership_above(old, target) == old.model_copy(update={"revision": 10, "coordinator": since, "term": 2000})
    newer = old.model_copy(update={"term": 3000})
    assert membership_above(newer, target) == newer.model_copy(update={"revision": 10})


def of_another_controller(world: World, revision: int, *members: str, term: int = 0) -> Target:
    """What a controller of another stage has written in the place of our target."""
    nominated = {"coordinator": members[0], "term": term} if term else {}
    target = Target.of(revision, members).model_copy(update={"stage": "dev", **nominated})
    world.parameters["/dyntrain/demo/target"] = target.model_dump_json()
    return target


def test_the_same_revision_with_other_content_pages_and_ours_goes_on_above_it() -> None:
    """A coordinator obeys the one that it read first, so writing over it would help nobody."""
    world, master, _ = running_cluster(2)
    before = world.target()
    of_another_controller(world, before.revision, master)
    world.calls.clear()
    world.resync()
    assert (world.target().revision, world.target().members) == (before.revision + 1, before.members)
    assert published(world) == [before.revision + 1]
    assert ("TargetDisputed", "demo", 1) in world.metrics
    (alarm,) = [entry for entry in world.trail if entry["kind"] == "TargetDisputed"]
    assert "stage dev" in alarm["detail"]
    assert world.count("instances.terminate") == 0


def test_a_new_revision_is_not_written_over_another_controllers_target_of_that_revision() -> None:
    world, master, workers = running_cluster(1)
    later = world.target().term + 1000
    foreign = of_another_controller(world, world.target().revision + 1, master, term=later)
    newcomer = world.launch(5)
    world.hear(world.tag(newcomer), world.report(newcomer))
    assert world.target() == foreign
    assert ("TargetDisputed", "demo", 1) in world.metrics
    world.resync()
    assert world.target().revision == foreign.revision + 1
    assert (world.target().coordinator, world.target().term) == (master, later)
    assert set(world.target().members or ()) == {master, *workers, newcomer}
