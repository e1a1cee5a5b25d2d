"""Nodes that people asked to leave wait for the policy's `leave_windows`; nothing else does."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from dyntrain.controller.contract.leave_windows import LEAVE_TAG, LeaveWindow
from fakes import World, instance_id, running_cluster
from pool_world import PoolWorld

HOUR = 3600.0
ENDS = {"instances.terminate", "groups.terminate"}


def opens_in(seconds: float, start: float) -> dict[str, str]:
    moment = datetime.fromtimestamp(start + seconds, UTC)
    return {"schedule": f"{moment.minute} {moment.hour} * * *", "duration": "1h"}


def waiting_cluster(elastic: int = 1, hours: float = 2.0, **policy) -> tuple[World, str, list[str], float]:
    """A job that trains, in a cluster whose window opens daily, next `hours` after about now; and when, to the
    minute.
    """
    start = World().now
    windows = (opens_in(hours * HOUR, start),)
    world, master, workers = running_cluster(elastic, leave_windows=windows, **policy)
    return world, master, workers, (start + hours * HOUR) // 60 * 60


def trains_on(world: World, *nodes: str) -> None:
    world.hear(world.job_event(*nodes, revision=world.target().revision))


def scaled_in(world: World, instance: str) -> None:
    """What Auto Scaling does with it when the desired capacity is lowered, as its event tells."""
    world.membership[instance].phase, world.membership[instance].waits = "terminating", "terminate"
    world.hear(world.hook_event(instance, "terminate", "t-1"))


def in_group(world: World, master: str, *others: str) -> str:
    """A worker of the group that trains."""
    instance = world.member(50, phase="in_service")
    world.hear(world.report(instance))
    world.resync()
    trains_on(world, master, *others, instance)
    assert world.mirror(instance) == "ADDED"
    return instance


def test_an_untagged_node_trains_on_until_the_window_opens_and_the_resync_lets_it_go() -> None:
    world, master, (worker,), opens = waiting_cluster()
    revision = world.target().revision
    world.hear(world.tag(worker, present=False))
    assert world.standing(worker) == ("REMOVAL_QUEUED", "WAITS_FOR_WINDOW")
    assert (world.target().revision, worker in world.target().members) == (revision, True)
    (standing,) = [node.standing for node in world.decision().nodes if node.view.instance == worker]
    assert standing.next_change == opens
    assert datetime.fromtimestamp(opens, UTC).isoformat(timespec="minutes") in standing.detail
    world.now = opens - 1
    trains_on(world, master, worker)
    world.resync()
    assert worker in world.target().members
    assert not ENDS & {call[0] for call in world.calls}
    world.now = opens
    world.resync()
    assert world.target().members == (master,)
    assert world.standing(worker) == ("REMOVAL_QUEUED", "LEAVES_AT_BOUNDARY")
    world.now += 2 * HOUR  # the window is over, the boundary comes only now: what has begun is finished
    trains_on(world, master)
    assert world.count("instances.terminate") == 1


def test_while_it_waits_the_tag_put_back_keeps_it() -> None:
    world, master, (worker,), opens = waiting_cluster()
    world.hear(world.tag(worker, present=False))
    world.wait(60)
    world.hear(world.tag(worker))
    world.now = opens
    trains_on(world, master, worker)
    world.resync()
    assert world.standing(worker) == ("ADDED", "TRAINING")


def test_a_node_that_joins_waits_for_no_window() -> None:
    world, _, _, _ = waiting_cluster()
    newcomer = world.launch(9)
    world.hear(world.tag(newcomer), world.report(newcomer))
    assert newcomer in world.target().members


def test_a_node_that_the_job_does_not_have_yet_or_has_lost_waits_for_no_window() -> None:
    world, master, workers, _ = waiting_cluster(2)
    trains_on(world, master, workers[0])
    world.take_in(*(world.tag(worker, present=False) for worker in workers))
    world.settle()
    assert world.target().members == (master, workers[0])


@pytest.mark.parametrize("first", ["leave", "untag"])
def test_the_tag_leave_now_overrules_the_window_for_one_node_in_either_order(first: str) -> None:
    world, master, (worker, other), _ = waiting_cluster(2)
    events = []
    for what in ("leave", "untag") if first == "leave" else ("untag", "leave"):
        if what == "leave":
            world.machines[worker].tags[LEAVE_TAG] = "now"
            world.machines[worker].tag_version += 1
            changed = world.machines[worker]
            events.append(world.tag_event(worker, changed.tag_version, changed.tags, [LEAVE_TAG]))
        else:
            events.append(world.tag(worker, present=False))
        world.hear(events[-1])
    world.hear(world.tag(other, present=False))
    assert world.target().members == (master, other)


def test_a_policy_without_windows_lets_all_go_at_once() -> None:
    world, master, (worker,), _ = waiting_cluster()
    world.hear(world.tag(worker, present=False))
    world.register(world.rules().policy.model_copy(update={"leave_windows": ()}))
    world.wait(60)
    world.resync()
    assert world.target().members == (master,)


def test_a_lowered_desired_capacity_waits_in_the_groups_hook_which_is_kept_alive() -> None:
    world, master, (worker,), opens = waiting_cluster()
    instance = in_group(world, master, worker)
    scaled_in(world, instance)
    # the node sees in its metadata what its group will do, and says so
    world.hear(world.report(instance, "interrupted", reason="autoscaling-terminated", deadline=world.now + 120))
    assert world.standing(instance) == ("REMOVAL_QUEUED", "WAITS_FOR_WINDOW")
    while world.now + 60 < opens:
        world.wait(60)
        trains_on(world, master, worker, instance)
        world.resync()
        assert instance in world.target().members
    beats = [call for call in world.calls if call[0] == "groups.heartbeat"]
    assert len(beats) > 100
    assert world.count("groups.complete") == 0
    world.now = opens
    world.resync()
    assert instance not in world.target().members
    trains_on(world, master, worker)
    assert world.count("groups.complete") == 1
    assert world.mirror(instance) == "REMOVED"


def test_a_lowered_desired_capacity_waits_no_longer_than_the_groups_hook() -> None:
    world, master, (worker,), _ = waiting_cluster(hours=12.0, hook_cap_seconds=HOUR)
    instance = in_group(world, master, worker)
    scaled_in(world, instance)
    began = world.now
    (standing,) = [node.standing for node in world.decision().nodes if node.view.instance == instance]
    assert standing.next_change == began + HOUR - 900
    assert "45 minutes" in standing.detail
    world.now = began + HOUR - 900
    trains_on(world, master, worker, instance)
    world.resync()
    assert instance not in world.target().members


def test_of_two_hooks_that_wait_the_one_that_gives_up_first_is_what_counts() -> None:
    world, master, (worker,), _ = waiting_cluster(hours=12.0, hook_cap_seconds=HOUR)
    instance = in_group(world, master, worker)
    scaled_in(world, instance)
    began = world.now
    world.wait(600)
    world.hear(world.hook_event(instance, "terminate", "another", LifecycleHookName="another"))
    trains_on(world, master, worker, instance)
    (standing,) = [node.standing for node in world.decision().nodes if node.view.instance == instance]
    assert standing.reason == "WAITS_FOR_WINDOW"
    world.now = began + HOUR - 900
    trains_on(world, master, worker, instance)
    world.resync()
    assert instance not in world.target().members


def test_a_group_without_a_hook_cannot_be_made_to_wait() -> None:
    world, master, (worker,), _ = waiting_cluster()
    instance = in_group(world, master, worker)
    world.membership[instance].phase = "terminating"
    world.wait(60)
    trains_on(world, master, worker, instance)
    world.resync()
    assert instance not in world.target().members


@pytest.mark.parametrize("what", ["spot", "retirement", "stopping", "terminated", "worker failed"])
def test_what_aws_takes_and_what_fails_waits_for_no_window(what: str) -> None:
    world, master, (worker,), _ = waiting_cluster()
    world.hear(world.tag(worker, present=False))
    assert worker in world.target().members
    spot = {"instance-id": worker, "instance-action": "terminate"}
    retires = datetime.fromtimestamp(world.now + 600, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    health = {
        "eventArn": "arn:aws:health:eu-central-1::event/EC2/R/1",
        "service": "EC2",
        "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
        "eventTypeCategory": "scheduledChange",
        "startTime": retires,
        "affectedEntities": [{"entityValue": worker}],
    }
    world.wait(5)
    world.hear(
        {
            "spot": lambda: world.event("aws.ec2", "EC2 Spot Instance Interruption Warning", spot),
            "retirement": lambda: world.event("aws.health", "AWS Health Event", health),
            "stopping": lambda: world.state_event(worker, "stopping"),
            "terminated": lambda: world.state_event(worker, "terminated"),
            "worker failed": lambda: world.report(worker, "worker_failed", reason="exit 1"),
        }[what]()
    )
    assert world.target().members == (master,)


@pytest.mark.parametrize("what", ["spot", "stopping"])
def test_what_aws_takes_while_its_group_waits_waits_no_longer(what: str) -> None:
    world, master, (worker,), _ = waiting_cluster()
    instance = in_group(world, master, worker)
    scaled_in(world, instance)
    assert instance in world.target().members
    spot = {"instance-id": instance, "instance-action": "terminate"}
    world.wait(20)
    world.hear(
        world.event("aws.ec2", "EC2 Spot Instance Interruption Warning", spot)
        if what == "spot"
        else world.state_event(instance, "stopping")
    )
    assert instance not in world.target().members


def test_a_job_that_is_over_releases_its_nodes_at_once() -> None:
    world, master, (worker,), _ = waiting_cluster()
    world.hear(world.tag(worker, present=False))
    world.hear(world.job_event(master, worker, revision=world.target().revision, state="finished"))
    assert world.standing(worker) in (("REMOVED", "JOB_OVER"), ("REMOVED", "TERMINATE_ISSUED"))


def test_a_coordinator_that_is_silent_for_a_while_ends_no_wait() -> None:
    world, _, (worker,), _ = waiting_cluster()
    world.hear(world.tag(worker, present=False))
    world.wait(10 * 60)
    world.resync()
    assert worker in world.target().members


def test_those_that_wait_count_as_workers_and_the_minimum_holds_them_when_the_window_opens() -> None:
    world, master, workers, opens = waiting_cluster(2, min_workers=2)
    world.take_in(*(world.tag(worker, present=False) for worker in workers))
    world.settle()
    assert {world.standing(worker)[1] for worker in workers} == {"WAITS_FOR_WINDOW"}
    world.now = opens
    trains_on(world, master, *workers)
    world.resync()
    assert [world.standing(worker)[1] for worker in workers] == ["HELD_BY_MINIMUM", "LEAVES_AT_BOUNDARY"]


def waiting_pool(**pool) -> tuple[PoolWorld, float]:
    """A pool that decides at once, but for a window that opens in two hours; and when."""
    pools = PoolWorld.of(**pool)
    window = LeaveWindow(**opens_in(2 * HOUR, pools.world.now))
    pools.world.register(pools.world.rules().policy.model_copy(update={"leave_windows": (window,)}))
    pools.world.wait(60)  # as long as policies are remembered
    return pools, (pools.world.now - 60 + 2 * HOUR) // 60 * 60


def test_a_pool_gives_reserved_instances_back_when_the_window_opens_and_takes_them_at_any_time() -> None:
    pools, opens = waiting_pool()
    pools.reserve(3)
    pools.run()
    assert pools.desired() == 3
    pools.reserve(1)
    pools.run()
    assert pools.desired() == 3
    entry = pools.entries("Rebalance")[-1]
    assert (entry["why"], entry["proposal"]) == ("WAITS_FOR_WINDOW", "1")
    assert datetime.fromtimestamp(opens, UTC).isoformat(timespec="minutes") in entry["detail"]
    pools.world.now = opens
    pools.run(wait=0.0)
    assert pools.desired() == 1


def test_listed_instances_of_a_pool_are_given_back_when_the_window_opens() -> None:
    machine = instance_id(10)
    pools, opens = waiting_pool(groups=False, instances=(machine,))
    pools.stopped(10)
    pools.reserve(1)
    pools.run()
    pools.run()
    assert pools.tagged(machine)
    pools.reserve(0)
    pools.run()
    assert pools.tagged(machine)
    pools.world.now = opens
    pools.run(wait=0.0)
    assert not pools.tagged(machine)
