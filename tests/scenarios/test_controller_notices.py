"""Machines that AWS takes away or changes: Spot, rebalance, scheduled maintenance (C23, C28), and payloads as AWS sends
them (C4, C15).
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from fakes import ELASTIC, START, World, instance_id

HOUR = 3600.0


def trained(elastic: int = 1) -> tuple[World, str, list[str]]:
    world = World()
    master = world.launch(1000, base=True, NodeType="Master")
    workers = [world.launch(number) for number in range(1, elastic + 1)]
    world.hear(world.report(master))
    for worker in workers:
        world.hear(world.tag(worker), world.report(worker))
    world.hear(world.job_event(master, *workers, revision=world.target().revision))
    return world, master, workers


def health(world: World, starts: float, *instances: str, **fields: object) -> dict:
    detail = {
        "eventArn": "arn:aws:health:eu-central-1::event/EC2/AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED/one",
        "service": "EC2",
        "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
        "eventTypeCategory": "scheduledChange",
        "startTime": format_datetime(datetime.fromtimestamp(starts, UTC), usegmt=True),
        "affectedEntities": [{"entityValue": instance} for instance in instances],
        **fields,
    }
    return world.event("aws.health", "AWS Health Event", detail)


def spot(world: World, instance: str, action: str = "terminate", at: float | None = None) -> dict:
    return world.event(
        "aws.ec2", "EC2 Spot Instance Interruption Warning", {"instance-id": instance, "instance-action": action}, at=at
    )


def test_c23_whatever_comes_first_the_earliest_deadline_reaches_the_coordinator() -> None:
    world, _, (worker,) = trained()
    now = world.now
    world.hear(health(world, now + 600, worker))
    assert world.target().leave_by == {worker: now + 600}
    world.hear(spot(world, worker, at=now + 5))
    world.hear(world.event("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": worker}, at=now + 30))
    assert world.target().leave_by == {worker: now + 125}


def test_a_scheduled_change_names_an_instance_by_its_arn_too() -> None:
    world, _, (worker,) = trained()
    world.hear(health(world, world.now + 600, f"arn:aws:ec2:eu-central-1:111122223333:instance/{worker}"))
    assert world.target().leave_by == {worker: world.now + 600}


def test_c23_hibernation_begins_with_its_notice() -> None:
    world, _, (worker,) = trained()
    world.hear(spot(world, worker, "hibernate"))
    assert world.target().leave_by == {worker: world.now}


def test_c28_a_spot_notice_of_yesterday_takes_nobody_out() -> None:
    world, _, (worker,) = trained()
    event = spot(world, worker, at=world.now - 86_400) | {"replay-name": "yesterday"}
    before = world.target()
    world.hear(event)
    world.resync()
    assert (world.status(worker), world.target()) == ("ADDED", before)


def test_a_machine_that_outlives_its_notice_may_come_back_by_itself() -> None:
    world = World()
    instance = world.launch(1, owned=False)
    world.hear(
        world.report(world.launch(9, base=True)), world.tag(instance), world.report(instance), spot(world, instance)
    )
    assert world.standing(instance) == ("REMOVED", "INTERRUPTED")
    standing = next(node.standing for node in world.decision().nodes if node.view.instance == instance)
    assert standing.next_change == world.now + 120 + 900
    world.wait(120 + 901)
    world.resync()
    assert world.status(instance) == "ADD_QUEUED"


def test_maintenance_days_ahead_is_left_for_shortly_before_it_begins() -> None:
    world, _, (first, second) = trained(2)
    starts = world.now + 50 * HOUR
    world.hear(health(world, starts, first, second))
    assert [world.status(node) for node in (first, second)] == ["ADDED"] * 2
    world.now = starts - 890
    world.hear(world.job_event(first, second, revision=world.target().revision))
    world.resync()
    assert set(world.target().leave_by) == {first, second}
    assert [world.status(node) for node in (first, second)] == ["REMOVAL_QUEUED"] * 2


@pytest.mark.parametrize("news", [{"statusCode": "closed"}, {"affectedEntities": "resolved"}, {"startTime": "later"}])
def test_maintenance_that_is_called_off_or_put_off_is_no_reason_to_leave(news: dict) -> None:
    world, _, (worker,) = trained()
    starts = world.now + 2 * HOUR
    world.hear(health(world, starts, worker))
    world.wait(60)
    if "affectedEntities" in news:
        news = {"affectedEntities": [{"entityValue": worker, "status": "RESOLVED"}]}
    later = starts + 100 * HOUR if "startTime" in news else starts
    world.hear(health(world, later, worker, **{key: value for key, value in news.items() if key != "startTime"}))
    world.now = starts - 600
    world.hear(world.job_event(worker, revision=world.target().revision))
    world.resync()
    assert world.target().leave_by == {}
    assert worker in world.target().members


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"eventTypeCategory": "accountNotification"}, "ignored"),
        ({"service": "RDS"}, "ignored"),
        ({"affectedEntities": [{"entityValue": "cr-0123456789abcdef0"}]}, "ignored"),
        ({"affectedEntities": []}, "ignored"),
        ({"startTime": None}, "quarantined"),
        ({"startTime": "some day"}, "quarantined"),
    ],
)
def test_health_events_that_schedule_nothing_for_an_instance_write_nothing(fields: dict, kind: str) -> None:
    world, _, (worker,) = trained()
    writes = world.count("nodes.put")
    assert world.take_in(health(world, world.now, worker, **fields))[0].kind == kind
    assert world.count("nodes.put") == writes


@pytest.mark.parametrize("key", ["instance-id", "instance_id"])
def test_c4_state_events_come_with_two_spellings_and_with_the_name_of_their_replay(key: str) -> None:
    world, _, (worker,) = trained()
    event = world.event("aws.ec2", "EC2 Instance State-change Notification", {key: worker, "state": "terminated"}) | {
        "replay-name": "r"
    }
    world.hear(event)
    assert world.status(worker) == "GONE"


def test_c15_back_into_the_warm_pool_and_out_again() -> None:
    world = World()
    instance = world.member(1, phase="warm")
    world.hear(world.report(world.launch(9, base=True)))
    world.hear(world.hook_event(instance, "launch", "in", Origin="EC2", Destination="WarmPool"), world.report(instance))
    assert world.standing(instance) == ("WAITING", "IN_WARM_POOL")
    assert ("groups.complete", instance, "demo-launch", "in", "CONTINUE") in world.calls
    world.wait(30)
    world.hear(world.hook_event(instance, "launch", "out", Origin="WarmPool", Destination="AutoScalingGroup"))
    assert world.status(instance) == "ADD_QUEUED"
    world.wait(30)
    world.hear(world.hook_event(instance, "terminate", "back", Origin="AutoScalingGroup", Destination="WarmPool"))
    assert instance not in world.target().members
    world.wait(30)
    detail = {"EC2InstanceId": instance, "AutoScalingGroupName": "demo-workers", "Destination": "WarmPool"}
    world.hear(world.event("aws.autoscaling", "EC2 Instance Terminate Successful", detail))
    assert world.standing(instance) == ("WAITING", "IN_WARM_POOL")


def test_a_replayed_day_of_one_nodes_events_changes_nothing_at_all() -> None:
    world, master, (worker,) = trained()
    old = world.now - 86_400
    world.launch(77)
    replayed = [
        world.tag_event(worker, 0, {ELASTIC.of("demo"): ""}, [ELASTIC.of("demo")], at=old),
        world.state_event(worker, "pending", at=old),
        world.state_event(worker, "stopping", at=old + 1),
        world.hook_event(worker, "launch", "t-old", at=old),
        spot(world, worker, at=old),
        world.event("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": worker}, at=old),
        health(world, old, worker) | {"time": datetime.fromtimestamp(old, UTC).isoformat()},
        world.report(worker, "prepare_failed", attempt=1, at=old, reason="yesterday"),
        world.job_event(worker, revision=0, started_at=START - 86_400),
    ]
    before = world.target()
    world.resync()
    world.hear(*(event | {"replay-name": "yesterday"} for event in replayed))
    world.resync()
    assert world.target() == before
    assert [world.status(node) for node in (master, worker)] == ["ADDED"] * 2
    assert world.count("instances.terminate") == 0


def test_notices_of_instances_that_are_nobodys_do_not_wake_the_controller() -> None:
    world = World()
    world.hear(spot(world, instance_id(5)))
    assert not world.stream
    assert world.count("parameters.put_target") == 0
