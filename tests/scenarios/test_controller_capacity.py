"""Launches that fail (C17), groups that change their machines by themselves (C16), and groups that are found (C26)."""

from __future__ import annotations

import pytest
from dyntrain.controller.contract.errors import RetryLater
from dyntrain.controller.contract.messages import ClusterPolicy
from fakes import Member, World

GROUP = "demo-workers"


def short(desired: int = 5, running: int = 3, minimum: int = 0) -> World:
    """A group that wants more than it has."""
    world = World(launch_cooldown_seconds=300.0)
    for number in range(1, running + 1):
        world.member(number, phase="in_service")
    world.limits[GROUP] = (minimum, 10, desired)
    return world


def failed(
    world: World, message: str = "InsufficientInstanceCapacity", instance: str = "", at: float | None = None
) -> dict:
    detail = {
        "EC2InstanceId": instance,
        "AutoScalingGroupName": GROUP,
        "StatusCode": "Failed",
        "StatusMessage": message,
        "Details": {},
    }
    return world.event("aws.autoscaling", "EC2 Instance Launch Unsuccessful", detail, at=at)


def desired(world: World) -> int:
    return world.limits[GROUP][2]


def test_c17_desired_capacity_is_lowered_to_what_runs_and_training_goes_on_meanwhile() -> None:
    world = short()
    world.resync()
    ready = world.member(9, phase="in_service")
    world.hear(world.hook_event(ready, "launch", "t-9"), world.report(ready))
    world.hear(failed(world))
    assert desired(world) == 4
    assert world.target().members == (ready,)
    assert ("LaunchFailed", "demo", 1) in world.metrics


def test_c17_the_groups_minimum_is_never_undercut() -> None:
    world = short(desired=6, running=1, minimum=4)
    world.hear(failed(world))
    assert desired(world) == 4


def test_c17_the_same_failure_ten_times_and_its_siblings_lower_once() -> None:
    world = short()
    event = failed(world)
    world.hear(*[event] * 10)
    world.hear(failed(world, at=world.now + 1))
    world.resync()
    assert world.count("groups.set_desired") == 1


def test_c17_capacity_is_filled_back_after_the_cooldown_and_each_failure_in_a_row_doubles_it() -> None:
    world = short()
    world.hear(failed(world))
    waits = []
    for _ in range(3):
        waited = 0
        while desired(world) == 3:
            world.wait(60)
            waited += 60
            world.resync()
        waits.append(waited)
        assert desired(world) == 5
        world.wait(20)
        world.hear(failed(world))
        assert desired(world) == 3
    assert waits == [300, 600, 1200]


def test_c17_a_failure_that_is_heard_of_after_the_group_was_filled_back_lowers_nothing() -> None:
    """Its machines are on their way, and lowered to what runs it would end some of those that do."""
    world = short()
    world.hear(failed(world))
    before = world.now
    while desired(world) == 3:
        world.wait(60)
        world.resync()
    world.hear(failed(world, at=before + 30))
    assert desired(world) == 5


def test_c17_what_a_person_sets_meanwhile_stands() -> None:
    world = short()
    world.hear(failed(world))
    world.limits[GROUP] = (0, 10, 2)
    for _ in range(10):
        world.wait(60)
        world.resync()
    assert desired(world) == 2


@pytest.mark.parametrize("step", ["groups.set_desired", "group_records.put"])
def test_c17_a_crash_around_the_lowering_forgets_neither_it_nor_the_way_back(step: str) -> None:
    world = short()
    world.take_in(failed(world))
    crash = [RetryLater("crashed here")]
    world.failing[step] = crash
    with pytest.raises(RetryLater):
        world.settle()
    world.resync()
    assert desired(world) == 3
    for _ in range(6):
        world.wait(60)
        world.resync()
    assert desired(world) == 5


def test_c17_a_crash_after_the_lowering_and_before_it_is_remembered_keeps_the_way_back() -> None:
    world = short()
    world.take_in(failed(world))
    world.before["groups.set_desired"] = [
        lambda: world.failing.update({"group_records.put": [RetryLater("crashed here")]})
    ]
    with pytest.raises(RetryLater):
        world.settle()
    assert desired(world) == 3
    for _ in range(8):
        world.wait(60)
        world.resync()
    assert desired(world) == 5


def test_c17_limits_that_were_moved_meanwhile_are_kept_when_the_lowering_is_repeated() -> None:
    world = short()
    world.take_in(failed(world))
    world.failing["groups.set_desired"] = [RetryLater("away")]
    with pytest.raises(RetryLater):
        world.settle()
    world.limits[GROUP] = (4, 10, 5)
    world.resync()
    assert desired(world) == 4


def test_c17_our_own_abandon_is_no_want_of_capacity() -> None:
    world = short()
    outcome = world.hear(
        failed(world, "Instance failed to complete user's Lifecycle Action: token was abandoned", "i-00000001")
    )[0]
    assert (outcome.kind, desired(world)) == ("ignored", 5)


def test_c28_a_launch_failure_of_yesterday_lowers_nothing() -> None:
    world = short()
    world.hear(failed(world, at=world.now - 86_400) | {"replay-name": "yesterday"})
    world.resync()
    assert desired(world) == 5


def test_c32_a_cooldown_ends_though_nothing_else_happens() -> None:
    world = short()
    world.hear(failed(world))
    world.wait(3600)
    world.resync()
    assert desired(world) == 5


def test_a_throttled_size_changes_nothing_and_is_read_again() -> None:
    world = short()
    world.take_in(failed(world))
    world.failing["groups.sizes"] = [RetryLater("Throttling")]
    with pytest.raises(RetryLater):
        world.settle()
    assert desired(world) == 5
    world.resync()
    assert desired(world) == 3


def test_c16_a_rebalance_of_zones_is_one_change_at_the_boundary_and_never_less_workers() -> None:
    world = World(max_workers=5)
    master = world.launch(1000, base=True, NodeType="Master")
    old = [world.member(number, phase="in_service") for number in (1, 2)]
    world.hear(world.report(master))
    world.resync()
    world.hear(*(world.report(node) for node in old))
    obeyed = world.target().revision
    world.hear(world.job_event(master, *old, revision=obeyed))
    new = [world.member(number) for number in (11, 12)]
    for node in new:  # up, one after the other, then down: between two boundaries
        world.hear(world.hook_event(node, "launch", f"up-{node}"))
        world.hear(world.report(node))
    for node in old:
        world.membership[node] = Member(GROUP, "terminating", "terminate")
        world.hear(world.hook_event(node, "terminate", f"down-{node}"))
    assert world.target().members == (master, *new)
    assert [world.status(node) for node in (*old, *new)] == ["REMOVAL_QUEUED"] * 2 + ["ADD_QUEUED"] * 2
    assert not [
        call for call in world.calls if call[0] == "groups.complete" and call[4] == "CONTINUE" and call[1] in old
    ]
    world.hear(world.job_event(master, *new, revision=world.target().revision, generation=2))  # the one boundary
    assert [world.status(node) for node in (*old, *new)] == ["REMOVED"] * 2 + ["ADDED"] * 2
    assert world.count("groups.terminate") == 0


def test_c16_newcomers_of_a_rebalance_above_the_maximum_take_the_places_of_those_that_go() -> None:
    world = World(max_workers=2)
    old = [world.member(number, phase="in_service") for number in (1, 2)]
    world.resync()
    world.hear(*(world.report(node) for node in old))
    new = [world.member(number) for number in (11, 12)]
    world.wait(1)
    world.hear(*(world.hook_event(node, "launch", f"up-{node}") for node in new), *(world.report(node) for node in new))
    assert [world.standing(node) for node in new] == [("ADD_QUEUED", "ABOVE_MAXIMUM")] * 2
    revision = world.target().revision
    for node in old:
        world.membership[node] = Member(GROUP, "terminating", "terminate")
    world.take_in(*(world.hook_event(node, "terminate", f"down-{node}") for node in old))
    world.settle()
    assert (world.target().members, world.target().revision) == (tuple(new), revision + 1)


@pytest.mark.parametrize(
    "word", ["Started", "Checkpoint Reached", "Succeeded", "Cancelled", "Failed", "Rollback Started"]
)
def test_c16_what_an_instance_refresh_says_of_itself_writes_nothing(word: str) -> None:
    world = World()
    detail = {"InstanceRefreshId": "refresh-1", "AutoScalingGroupName": GROUP, "CheckpointPercentage": "50"}
    outcome = world.hear(world.event("aws.autoscaling", f"EC2 Auto Scaling Instance Refresh {word}", detail))[0]
    assert outcome.kind == "ignored"
    assert world.count("nodes.put") == 0


def test_c26_a_group_that_the_clusters_own_stack_made_is_the_clusters_without_registration() -> None:
    world = World("demo", "other")
    world.group_tags["extra"] = world.group_stacks["extra"] = "demo"
    known = world.launch(1, owned=False)
    world.membership[known] = Member("extra", "in_service")
    world.resync()
    assert world.machines[known].tags["dyntrain:cluster"] == "demo"
    newcomer = world.launch(2, owned=False)
    world.membership[newcomer] = Member("extra", "launching", "launch")
    event = world.hook_event(newcomer, "launch", "t-2")
    event["detail"]["AutoScalingGroupName"] = "extra"
    world.hear(event, world.report(newcomer))
    assert ("groups.complete", newcomer, "demo-launch", "t-2", "CONTINUE") in world.calls
    assert world.status(newcomer) == "ADD_QUEUED"


def test_c26_a_group_that_another_cluster_registered_stays_that_clusters_whatever_its_tag_says() -> None:
    world = World("demo", "other")
    world.group_tags["other-workers"] = world.group_stacks["other-workers"] = "demo"
    node = world.member(1, "other", phase="in_service")
    world.resync()
    assert world.rules("demo").groups == ("demo-workers",)
    assert world.machines[node].tags["dyntrain:cluster"] == "other"


def test_c26_a_group_that_loses_the_tag_is_left_alone_from_then_on() -> None:
    world = World("demo")
    world.group_tags["extra"] = world.group_stacks["extra"] = "demo"
    world.resync()
    assert world.rules().groups == ("demo-workers", "extra")
    world.wait(60)
    world.group_tags.clear()
    world.resync()
    assert world.rules().groups == ("demo-workers",)


def test_a_cluster_has_as_many_groups_as_its_policy_says() -> None:
    world = World("demo", groups=("first", "second"))
    nodes = [world.launch(number, owned=False) for number in (1, 2)]
    for node, group in zip(nodes, ("first", "second"), strict=True):
        world.membership[node] = Member(group, "in_service")
    world.resync()
    world.hear(*(world.report(node) for node in nodes))
    world.wait(1)
    world.hear(*(world.tag(node, present=False) for node in nodes))
    world.wait(31)
    world.resync()
    assert [call[1:] for call in world.calls if call[0] == "groups.terminate"] == [(nodes[1], "second")]
    assert world.standing(nodes[0]) == ("ADD_QUEUED", "HELD_BY_MINIMUM")


def test_c26_a_tagged_group_that_another_cluster_registers_is_that_clusters_before_the_next_reading() -> None:
    world = World("demo", "other")
    world.group_tags["extra"] = world.group_stacks["extra"] = "demo"
    world.resync()
    world.register(ClusterPolicy(cluster="other", groups=("extra",)))
    world.wait(31)
    assert world.rules("demo").groups == ("demo-workers",)
