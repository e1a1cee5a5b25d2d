"""C30 for a cluster without a group: reserved instances that its policy lists are started, tagged and given back."""

from __future__ import annotations

from typing import Any

import pytest
from dyntrain.controller.contract.errors import RetryLater
from dyntrain.controller.contract.messages import BASE_TAG, OWNER_TAG
from pool_world import PoolWorld


def listed(*numbers: int, **pool: Any) -> tuple[PoolWorld, list[str]]:
    ids = [f"i-{number:017x}" for number in numbers]
    pools = PoolWorld.of(groups=False, instances=tuple(ids), **pool)
    return pools, [pools.stopped(number) for number in numbers]


def train(pools: PoolWorld, *instances: str) -> None:
    """The job of a master and these instances, as the coordinator reports it."""
    world = pools.world
    target = world.target().revision
    world.hear(world.job_event(*instances, revision=target))
    world.resync()


def joined(pools: PoolWorld, instance: str) -> None:
    world = pools.world
    world.resync()
    world.hear(world.report(instance))
    assert world.status(instance) == "ADD_QUEUED"
    train(pools, instance)
    assert world.status(instance) == "ADDED"


def test_a_listed_instance_is_started_and_tagged_and_given_back_stopped_after_the_job_let_it_go() -> None:
    pools, (one, two) = listed(1, 2)
    world = pools.world
    base = world.launch(90, base=True, NodeType="Master")
    pools.kinds[base] = {"instance_type": "m5.large"}
    world.resync()
    world.hear(world.report(base))
    pools.reserve(1)
    pools.run()
    assert (world.machines[one].state, pools.tagged(one)) == ("running", True)
    assert (world.machines[two].state, pools.tagged(two)) == ("stopped", False)
    world.resync()
    world.hear(world.report(one))
    train(pools, base, one)
    assert world.status(one) == "ADDED"

    pools.demand(50)
    pools.run()
    assert not pools.tagged(one)
    pools.run()
    world.resync()
    train(pools, base, one)
    assert world.status(one) == "REMOVAL_QUEUED"
    pools.run(wait=1.0)
    assert world.machines[one].state == "running", "the job still has it"
    train(pools, base)
    assert world.status(one) == "REMOVED"
    pools.run()
    assert world.machines[one].state == "stopped"
    pools.run()
    assert (pools.stored.claims["demo"].held, pools.stored.claims["demo"].count) == ((), 0)
    assert world.count("instances.terminate") == 0


def test_what_somebody_else_started_is_demand_and_is_never_stopped_or_tagged() -> None:
    pools, (one, two) = listed(1, 2)
    pools.world.machines[one].state = "running"
    pools.reserve(2)
    pools.run()
    assert (pools.tagged(one), pools.tagged(two)) == (False, True)
    pools.reserve(0)
    for _ in range(4):
        pools.run()
        pools.world.resync()
    assert (pools.world.machines[one].state, pools.world.machines[two].state) == ("running", "stopped")
    assert ("instances.stop", two) in pools.world.calls
    assert all(one not in call for call in pools.world.calls if call[0].startswith("reservations."))


@pytest.mark.parametrize(
    ("tags", "kind"),
    [
        ({"dyntrain:pool": "other"}, {}),
        ({"dyntrain:pool": "demo", OWNER_TAG: "demo"}, {}),
        ({}, {}),
        ({"dyntrain:pool": "demo"}, {"instance_type": "c5.xlarge"}),
        ({"dyntrain:pool": "demo"}, {"zone": "eu-central-1b"}),
        ({"dyntrain:pool": "demo"}, {"lifecycle": "spot"}),
    ],
)
def test_only_tagged_instances_of_the_pools_kind_are_started(tags: dict[str, str], kind: dict[str, str]) -> None:
    """What the cluster owns would be terminated on leaving; what is of another kind would not be paid for by the
    reservation.
    """
    pools, (one,) = listed(1)
    pools.world.machines[one].tags = dict(tags)
    pools.kinds[one] = dict(kind)
    pools.reserve(2)
    pools.run()
    assert pools.world.machines[one].state == "stopped"


def test_each_half_done_effect_on_listed_instances_is_finished_by_the_next_run() -> None:
    pools, (one,) = listed(1)
    pools.reserve(1)
    pools.world.failing = {"instances.start": [RetryLater("busy")]}
    with pytest.raises(RetryLater, match="StartInstances"):
        pools.run()
    pools.world.failing = {"instances.tag": [RetryLater("busy")]}
    with pytest.raises(RetryLater, match="TagElastic"):
        pools.run()
    pools.run()
    assert (pools.world.machines[one].state, pools.tagged(one)) == ("running", True)
    pools.reserve(0)
    pools.world.failing = {"instances.untag": [RetryLater("busy")]}
    with pytest.raises(RetryLater, match="UntagElastic"):
        pools.run()
    pools.run()
    pools.world.resync()
    pools.world.failing = {"instances.stop": [RetryLater("busy")]}
    with pytest.raises(RetryLater, match="StopInstances"):
        pools.run()
    pools.run()
    assert pools.world.machines[one].state == "stopped"


def test_an_instance_on_its_way_out_is_taken_back_when_it_is_wanted_again() -> None:
    pools, (one, two) = listed(1, 2)
    pools.reserve(1)
    pools.run()
    joined(pools, one)
    pools.reserve(0)
    pools.run()
    pools.reserve(1)
    pools.run()
    assert (pools.tagged(one), pools.tagged(two)) == (True, False)
    assert pools.world.count("instances.stop") == 0


def test_an_instance_that_ec2_does_not_show_is_not_forgotten_and_one_that_is_terminated_is() -> None:
    """Forgotten while it runs, it would never be stopped."""
    pools, (one, two) = listed(1, 2)
    pools.reserve(1)
    pools.run()
    pools.hidden.add(one)
    pools.run()
    assert pools.stored.claims["demo"].held == (one,)
    assert one in pools.entries("Rebalance")[-1]["detail"]
    assert pools.world.machines[two].state == "stopped"
    pools.hidden.clear()
    pools.world.machines[one].state = "terminated"
    pools.run()
    assert pools.stored.claims["demo"].held == (two,), "another takes its place"
    assert pools.tagged(two)


def test_dry_run_leaves_listed_instances_alone() -> None:
    pools, (one,) = listed(1)
    policy = pools.world.registry.policy("demo")
    assert policy is not None
    assert policy.pool is not None
    pools.world.wait(60)
    pools.world.register(policy.model_copy(update={"pool": policy.pool.model_copy(update={"dry_run": True})}))
    pools.reserve(1)
    assert pools.run().changed == ()
    assert (pools.world.machines[one].state, pools.tagged(one), pools.stored.claims["demo"].held) == (
        "stopped",
        False,
        (),
    )


def test_an_instance_struck_from_the_policy_is_let_go() -> None:
    pools, (one, two) = listed(1, 2)
    pools.reserve(1)
    pools.run()
    policy = pools.world.registry.policy("demo")
    assert policy is not None
    assert policy.pool is not None
    pools.world.register(policy.model_copy(update={"pool": policy.pool.model_copy(update={"instances": (two,)})}))
    for _ in range(3):
        pools.run()
        pools.world.resync()
    assert (pools.world.machines[one].state, pools.tagged(one)) == ("stopped", False)
    assert pools.tagged(two)
    assert BASE_TAG not in pools.world.machines[two].tags


def test_after_the_job_listed_instances_are_given_back_at_once_and_taken_again_for_the_next_one() -> None:
    """However much is reserved, whatever the pool's minimum: nothing could train with them."""
    pools, (one,) = listed(1, min=1, readings=3, reading_seconds=0.0)
    world = pools.world
    pools.reserve(5)
    for _ in range(3):
        pools.run()
    master = world.launch(1000, base=True, NodeType="Master")
    world.hear(world.report(master), world.report(one))
    world.resync()
    world.hear(world.job_event(master, one, revision=world.target().revision))
    world.hear(world.job_event(master, state="finished", revision=world.target().revision))
    pools.run()
    assert not pools.tagged(one)
    world.resync()
    for _ in range(4):
        pools.run()
        world.resync()
    assert (world.machines[one].state, pools.tagged(one)) == ("stopped", False)
    assert pools.entries("Rebalance")[-1]["why"] == "CLOSED"
    world.hear(world.job_event(master, job="job-2", started_at=world.now, revision=world.target().revision))
    pools.run()
    assert (world.machines[one].state, pools.tagged(one)) == ("running", True)
