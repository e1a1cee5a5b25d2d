"""What is not the cluster's, whatever its tags say: groups of others, and instances that nobody asked to join."""

from __future__ import annotations

import pytest
from dyntrain.controller.contract.messages import OWNER_TAG
from dyntrain.controller.core.views.view import GROUP_TAG
from fakes import Member, World, running_cluster

EFFECTS = ("instances.", "groups.terminate", "groups.complete", "groups.set_desired", "groups.protect")
READS = ("instances.by_id", "instances.tagged", "instances.of_templates")


def effects(world: World, *about: str) -> list[tuple[str, ...]]:
    """What was done to these instances."""
    return [
        call
        for call in world.calls
        if call[0].startswith(EFFECTS) and call[0] not in READS and set(about).intersection(call)
    ]


def pass_time(world: World, minutes: int = 30) -> None:
    for _ in range(minutes):
        world.wait(60)
        world.resync()


@pytest.mark.parametrize("stack", [None, "", "other", "demo-nested-1A2B", "Demo"])
@pytest.mark.parametrize("groups", [(), ("demo-workers",)])
def test_a_strangers_group_that_carries_the_clusters_tag_is_left_alone(
    stack: str | None, groups: tuple[str, ...]
) -> None:
    """A cost tag, or a copied group. No member is stamped, ended or told a status, and the size stays."""
    world = World(groups=groups, terminate_orphans=True, orphan_grace_seconds=60.0)
    world.group_tags["theirs"] = "demo"
    if stack is not None:
        world.group_stacks["theirs"] = stack
    world.limits["theirs"] = (0, 10, 3)
    theirs = [world.launch(number, owned=False, elastic=False) for number in (1, 2, 3)]
    for node in theirs:
        world.machines[node].tags[GROUP_TAG] = "theirs"
        world.membership[node] = Member("theirs", "in_service")
    pass_time(world)
    assert world.rules().groups == groups
    assert effects(world, *theirs, "theirs") == []
    assert world.limits["theirs"] == (0, 10, 3)


def test_a_strangers_group_whose_tags_go_to_its_instances_is_left_alone() -> None:
    """The ownership tag leads the controller to them, and proves nothing."""
    world = World(terminate_orphans=True, orphan_grace_seconds=60.0)
    world.group_tags["theirs"] = "demo"
    theirs = [world.launch(number, owned=False, elastic=False) for number in (1, 2, 3)]
    for node in theirs:
        world.machines[node].tags.update({GROUP_TAG: "theirs", OWNER_TAG: "demo"})
        world.membership[node] = Member("theirs", "in_service")
    pass_time(world)
    assert effects(world, *theirs) == []


@pytest.mark.parametrize("phase", ["launching", "in_service"])
def test_a_member_of_the_clusters_own_group_that_nobody_asked_for_is_reported_and_never_ended(phase: str) -> None:
    """A group whose tags were forgotten, or whose launch template is somebody else's."""
    world = World(terminate_orphans=True, orphan_grace_seconds=600.0, hook_cap_seconds=900.0)
    node = world.member(1, phase=phase, elastic=False)
    pass_time(world)
    assert world.standing(node) == ("REMOVED", "NEVER_ASKED")
    assert [call[0] for call in effects(world, node)] == ["instances.tag"], "it is stamped, and that is all"
    assert ("Orphan", "demo", 1) in world.metrics


def test_nor_is_it_ended_at_the_jobs_end() -> None:
    world, master, (worker,) = running_cluster(1)
    stranger = world.member(7, phase="in_service", elastic=False)
    world.resync()
    world.wait(60)
    world.hear(world.job_event(master, worker, state="finished", revision=world.target().revision))
    pass_time(world)
    assert world.machines[worker].state == "shutting-down"
    assert not [call for call in effects(world, stranger) if "terminate" in call[0]]


@pytest.mark.parametrize("seen", ["event", "read", "removal"])
def test_what_was_asked_for_and_asked_to_leave_is_ended_however_the_tag_was_seen(seen: str) -> None:
    world, _, _ = running_cluster(1)
    node = world.member(7, phase="in_service")
    if seen == "event":
        world.hear(world.tag(node))
    elif seen == "read":
        world.resync()
    world.wait(60)
    gone = world.tag(node, present=False)
    if seen == "removal":
        world.hear(gone)
    pass_time(world, 5)
    assert [call for call in world.calls if call[0] == "groups.terminate"] == [
        ("groups.terminate", node, "demo-workers")
    ]


def test_what_another_cluster_asked_for_is_not_asked_for_by_this_one() -> None:
    world = World("demo", "other", terminate_orphans=True, orphan_grace_seconds=60.0)
    node = world.member(1, phase="in_service", elastic=False)
    world.machines[node].tags["other-aws-dl-cfn-elastic-worker"] = ""
    pass_time(world)
    assert not [call for call in effects(world, node) if "terminate" in call[0]]
