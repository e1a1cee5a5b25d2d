"""The size of a group is what people asked for: what AWS takes and what fails is replaced."""

from __future__ import annotations

import pytest
from dyntrain.controller.loops.resync import resync
from fakes import ELASTIC, World

GROUP = "demo-workers"


def spot_group(size: int, **policy: object) -> tuple[World, str, list[str]]:
    world = World(**policy)
    world.limits[GROUP] = (0, 20, size)
    master = world.launch(1000, base=True, NodeType="Master")
    world.hear(world.report(master))
    workers = [arrive(world, number) for number in range(1, size + 1)]
    world.hear(world.job_event(master, *workers, revision=world.target().revision))
    return world, master, workers


def arrive(world: World, number: int) -> str:
    """The group launches one, which prepares itself."""
    instance = world.member(number, phase="in_service")
    world.resync()
    world.hear(world.report(instance))
    return instance


def replaced_by_its_group(world: World, gone: str, number: int) -> str | None:
    """As Auto Scaling does: what ended is replaced as long as fewer run than are desired."""
    del world.membership[gone]
    world.machines[gone].state = "terminated"
    world.hear(world.state_event(gone, "terminated"))
    if len(world.membership) < world.limits[GROUP][2]:
        return arrive(world, number)
    return None


def test_ten_spot_workers_each_interrupted_once_in_an_hour_stay_ten() -> None:
    world, master, workers = spot_group(10)
    training = list(workers)
    for number, lost in enumerate(workers):
        world.wait(360)
        detail = {"instance-id": lost, "instance-action": "terminate"}
        world.hear(world.job_event(master, *training, revision=world.target().revision))
        world.hear(world.event("aws.ec2", "EC2 Spot Instance Interruption Warning", detail))
        training.remove(lost)
        world.hear(world.job_event(master, *training, revision=world.target().revision))
        successor = replaced_by_its_group(world, lost, 100 + number)
        assert successor is not None, "the group has shrunk"
        training.append(successor)
        world.hear(world.job_event(master, *training, revision=world.target().revision))
    assert world.limits[GROUP][2] == 10
    assert set(world.target().members or ()) == {master, *training}
    assert len(training) == 10


@pytest.mark.parametrize("cause", ["spot", "rebalance", "health", "capacity", "worker_failed"])
def test_what_is_taken_or_fails_does_not_lower_the_groups_size(cause: str) -> None:
    world, master, (lost, *rest) = spot_group(3)
    world.wait(30)
    events = {
        "spot": world.event("aws.ec2", "EC2 Spot Instance Interruption Warning", {"instance-id": lost}),
        "rebalance": world.event("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": lost}),
        "health": world.event(
            "aws.health",
            "AWS Health Event",
            {
                "service": "EC2",
                "eventTypeCategory": "scheduledChange",
                "eventArn": "arn:aws:health:x",
                "startTime": "Tue, 14 Nov 2023 22:40:00 GMT",
                "affectedEntities": [{"entityValue": lost}],
            },
        ),
        "capacity": world.event(
            "aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning", {"instance-id": lost}
        ),
        "worker_failed": world.report(lost, "worker_failed", reason="crashed five times"),
    }
    world.hear(events[cause])
    world.hear(world.job_event(master, *rest, revision=world.target().revision))
    assert ("groups.terminate", lost, GROUP) in world.calls
    assert world.limits[GROUP] == (0, 20, 3)


def test_whom_people_ask_to_leave_is_not_replaced() -> None:
    world, master, (left, *rest) = spot_group(3)
    world.wait(30)
    world.hear(world.tag(left, present=False))
    world.hear(world.job_event(master, *rest, revision=world.target().revision))
    assert world.limits[GROUP] == (0, 20, 2)


def test_an_interrupted_worker_that_people_asked_to_leave_as_well_is_not_replaced() -> None:
    world, master, (left, *rest) = spot_group(3)
    world.wait(30)
    world.hear(
        world.event("aws.ec2", "EC2 Spot Instance Interruption Warning", {"instance-id": left}),
        world.tag(left, present=False),
    )
    world.hear(world.job_event(master, *rest, revision=world.target().revision))
    assert world.limits[GROUP] == (0, 20, 2)


def failed_launch(world: World) -> None:
    detail = {"AutoScalingGroupName": GROUP, "EC2InstanceId": "", "StatusMessage": "no capacity"}
    world.hear(world.event("aws.autoscaling", "EC2 Instance Launch Unsuccessful", detail))


def test_capacity_is_filled_back_though_a_worker_was_asked_to_leave_meanwhile() -> None:
    """The controller's own decrement is no decision of others, which would end the filling back."""
    world, master, workers = spot_group(3, launch_cooldown_seconds=300.0)
    world.limits[GROUP] = (0, 20, 5)
    failed_launch(world)
    assert world.limits[GROUP][2] == 3
    world.wait(60)
    left = workers.pop()
    world.hear(world.tag(left, present=False))
    world.hear(world.job_event(master, *workers, revision=world.target().revision))
    assert world.limits[GROUP][2] == 2
    world.wait(300)
    world.resync()
    assert world.limits[GROUP][2] == 4, "five were wanted, one was asked to leave"


def test_who_left_before_the_launch_failed_does_not_lower_what_is_filled_back() -> None:
    world, master, workers = spot_group(3, launch_cooldown_seconds=300.0)
    left = workers.pop()
    world.hear(world.tag(left, present=False))
    world.hear(world.job_event(master, *workers, revision=world.target().revision))
    assert world.limits[GROUP][2] == 2
    world.wait(60)
    world.limits[GROUP] = (0, 20, 5)
    failed_launch(world)
    assert world.limits[GROUP][2] == 2
    world.wait(300)
    world.resync()
    assert world.limits[GROUP][2] == 5


def test_who_left_another_group_does_not_lower_what_is_filled_back() -> None:
    world, master, workers = spot_group(3, launch_cooldown_seconds=300.0, groups=(GROUP, "others"))
    world.limits["others"] = (0, 20, 1)
    other = world.member(50, phase="in_service")
    world.membership[other].group = "others"
    world.resync()
    world.hear(world.report(other))
    world.limits[GROUP] = (0, 20, 5)
    failed_launch(world)
    world.wait(60)
    world.hear(world.tag(other, present=False))
    world.hear(world.job_event(master, *workers, revision=world.target().revision))
    assert world.limits["others"][2] == 0
    world.wait(300)
    world.resync()
    assert world.limits[GROUP][2] == 5


def test_a_group_that_is_lowered_in_the_pass_in_which_it_would_be_filled_back_is_filled_back_by_the_next() -> None:
    """How far the pass itself has lowered it is not known before: it would be taken for a decision of others."""
    world, master, workers = spot_group(3, launch_cooldown_seconds=300.0, lease_seconds=1000.0)
    world.limits[GROUP] = (0, 20, 5)
    failed_launch(world)
    left = workers.pop()
    world.hear(world.tag(left, present=False))
    world.wait(301)
    world.take_in(world.job_event(master, *workers, revision=world.target().revision))
    world.resync()
    assert world.limits[GROUP][2] == 2
    world.wait(60)
    world.resync()
    assert world.limits[GROUP][2] == 4, "five were wanted, one was asked to leave"


def test_what_people_set_meanwhile_still_stands() -> None:
    world, _, _ = spot_group(3, launch_cooldown_seconds=300.0)
    world.limits[GROUP] = (0, 20, 5)
    failed_launch(world)
    world.wait(60)
    world.limits[GROUP] = (0, 20, 1)
    world.wait(300)
    world.resync()
    assert world.limits[GROUP][2] == 1


def test_a_detached_worker_that_is_untagged_is_ended_once_the_groups_were_read_again() -> None:
    """Its group does not know it any more: that is no proof that it has ended, and it costs money."""
    world, master, (detached, *rest) = spot_group(3)
    world.machines[detached].tags["dyntrain:cluster"] = "demo"
    world.wait(30)
    del world.membership[detached]
    world.hear(world.tag(detached, present=False))
    world.hear(world.job_event(master, *rest, revision=world.target().revision))
    assert world.machines[detached].state == "running"
    world.wait(60)
    world.resync()
    assert ("instances.terminate", detached) in world.calls


def test_a_partial_reading_of_a_young_instance_never_ends_it() -> None:
    """EC2 may not show all tags at first; a reading from then says nothing later either."""
    world = World()
    instance = world.launch(1, elastic=False)
    world.wait(2)
    world.resync()
    world.wait(30)
    world.machines[instance].tags["demo-aws-dl-cfn-elastic-worker"] = ""
    world.take_in(world.report(instance))
    world.settle()
    assert world.count("instances.terminate") == 0
    world.wait(30)
    world.resync()
    assert world.status(instance) == "ADD_QUEUED"
    assert world.count("instances.terminate") == 0


def test_what_is_to_be_ended_is_read_once_more_and_kept_if_its_tag_is_there() -> None:
    world = World()
    instance = world.launch(1)
    world.hear(world.tag(instance))
    world.wait(60)
    world.machines[instance].tags.pop("demo-aws-dl-cfn-elastic-worker")
    resync(world.ports, world.registry, ELASTIC)
    world.wait(1)
    world.machines[instance].tags["demo-aws-dl-cfn-elastic-worker"] = ""
    world.settle()
    assert world.count("instances.terminate") == 0
    world.resync()
    assert world.status(instance) == "WAITING"


def test_the_ownership_tag_alone_ends_nothing() -> None:
    """Whoever may set tags could end any instance of the account otherwise."""
    world = World(terminate_orphans=True, orphan_grace_seconds=120.0)
    victim = world.launch(1, owned=False, elastic=False)
    world.wait(3600)
    world.machines[victim].tags["dyntrain:cluster"] = "demo"
    for _ in range(5):
        world.wait(60)
        world.resync()
    assert world.status(victim) == "REMOVED"
    assert world.count("instances.terminate") == 0


def test_what_took_part_in_the_job_is_ended_when_it_is_asked_to_leave() -> None:
    world = World()
    master = world.launch(1000, base=True, NodeType="Master")
    worker = world.launch(1, owned=False)
    world.machines[worker].tags["dyntrain:cluster"] = "demo"
    world.hear(world.report(master), world.tag(worker), world.report(worker))
    world.hear(world.job_event(master, worker, revision=world.target().revision))
    world.hear(world.tag(worker, present=False))
    world.hear(world.job_event(master, revision=world.target().revision))
    assert ("instances.terminate", worker) in world.calls


def test_a_base_node_whose_base_tag_is_deleted_stays_and_people_are_told() -> None:
    world = World()
    base = world.launch(7, base=True)
    world.hear(world.report(base))
    world.resync()
    del world.machines[base].tags["dyntrain:base"]
    world.wait(60)
    world.resync()
    assert world.standing(base)[1] == "BASE_UNTAGGED"
    assert base in (world.target().members or ())
    assert ("BaseNodeAway", "demo", 1) in world.metrics
    assert world.count("instances.terminate") == 0


def test_a_node_that_says_it_is_no_base_node_is_none() -> None:
    """As it says itself: a controller that took it for one would nominate it, and it would never begin."""
    world = World()
    elastic = world.launch(7, **{"dyntrain:base": "false"})
    world.hear(world.report(elastic))
    world.resync()
    node = next(node for node in world.decision().nodes if node.view.instance == elastic)
    assert not node.view.base
    assert world.target().coordinator is None


def test_one_refused_instance_of_a_batch_costs_the_others_nothing() -> None:
    world, master, workers = spot_group(2)
    world.refusing[workers[0]] = "UnauthorizedOperation: not this one"
    world.hear(world.tag(workers[0], present=False), world.tag(workers[1], present=False))
    world.hear(world.job_event(master, revision=world.target().revision))
    assert world.mirror(workers[1]) == "REMOVED"
    assert world.ports.nodes.get(workers[1]).facts.acks.mirror.value == "REMOVED"  # type: ignore[union-attr]
    assert world.ports.nodes.get(workers[0]).facts.acks.mirror.value != "REMOVED"  # type: ignore[union-attr]


@pytest.mark.parametrize(("choice", "stays"), [("ignore", True), ("leave", False)])
def test_whether_a_rebalance_recommendation_is_followed_is_policy(choice: str, stays: bool) -> None:
    world, _master, (node, *_rest) = spot_group(2, rebalance=choice, rebalance_grace_seconds=600.0)
    world.wait(30)
    world.hear(world.event("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": node}))
    assert (node in (world.target().members or ())) is stays
    assert world.target().leave_by == ({} if stays else {node: world.now + 600.0})
