"""C30 in the shell: what the reserved pool does to groups and to listed instances, when reads fail, writes race and things break half way."""

from __future__ import annotations

import pytest
from fakes import SUFFIX
from pool_world import PoolWorld
from pydantic import ValidationError

from controller.contract import BASE_TAG, OWNER_TAG, ClusterPolicy
from controller.errors import GiveUp, Refused, RetryLater
from controller.facts import Named
from controller.groups import Capacity, GroupFacts
from controller.intake import merge_group
from controller.pool_policy import PoolPolicy
from controller.rebalance import rebalance
from controller.reserved import plan_pools
from controller.reserved_inputs import Inputs


def test_idle_reserved_instances_raise_desired_capacity_and_returning_demand_lowers_it() -> None:
    pools = PoolWorld.of()
    pools.reserve(3)
    pools.demand(1)
    assert pools.run().changed == ("demo",)
    assert pools.desired() == 2
    pools.launched(10, 2)
    assert pools.run().changed == (), "its own instances are not demand"
    pools.demand(2)
    pools.demand(3)
    pools.run()
    assert pools.desired() == 0
    assert pools.world.count("groups.terminate") == 0, "the group's scale-in hook lets the job release them at a boundary"


@pytest.mark.parametrize("read", ["reservations.reserved", "reservations.capacity", "reservations.machines", "groups.members", "groups.sizes"])
@pytest.mark.parametrize("error", [RetryLater("RequestLimitExceeded: slow down"), GiveUp("UnauthorizedOperation")])
def test_a_throttled_or_refused_read_changes_nothing_and_is_told(read: str, error: Exception) -> None:
    pools = PoolWorld.of()
    pools.reserve(3)
    before = pools.stored
    pools.world.failing[read] = [error]
    done = pools.run()
    assert not done.complete
    assert (pools.desired(), pools.stored) == (0, before)
    assert str(error) in pools.told("Rebalance")[-1]["inputs"]
    assert pools.run().changed == ("demo",), "and the next complete reading is acted on"


def test_a_reading_that_lacks_a_group_member_is_partial() -> None:
    """EC2 that shows less than Auto Scaling counts must not look like idle reservations."""
    pools = PoolWorld.of()
    pools.reserve(3)
    pools.run()
    pools.hidden.add(pools.launched(10, 3)[0])
    pools.reserve(0)
    assert not pools.run().complete
    assert pools.desired() == 3


def test_two_clusters_share_and_never_claim_one_reservation_twice() -> None:
    pools = PoolWorld.of("alpha", "beta", max=2)
    pools.reserve(3)
    pools.run()
    assert (pools.desired("alpha"), pools.desired("beta")) == (2, 1)
    assert sum(claim.count for claim in pools.stored.claims.values()) == 3
    pools.run()
    assert (pools.desired("alpha"), pools.desired("beta")) == (2, 1), "claimed, though nothing was launched yet"


def test_of_two_runs_at_once_only_one_acts() -> None:
    pools = PoolWorld.of("alpha", "beta")
    pools.reserve(2)
    pools.world.before["ledger.put"] = [lambda: rebalance(pools.ports, pools.world.registry, SUFFIX)]
    loser = pools.run()
    assert loser.skipped == "another run decided meanwhile"
    assert (pools.desired("alpha"), pools.desired("beta")) == (2, 0)
    assert pools.world.count("groups.set_desired") == 1


def test_a_crash_between_claim_and_effect_is_made_good_by_the_next_run() -> None:
    pools = PoolWorld.of()
    pools.reserve(2)
    pools.world.failing["groups.set_desired"] = [RetryLater("ServiceUnavailable")]
    with pytest.raises(RetryLater, match="demo: SetDesiredCapacity: ServiceUnavailable"):
        pools.run()
    assert (pools.desired(), pools.stored.claims["demo"].count) == (0, 2)
    pools.run()
    assert pools.desired() == 2


def test_one_clusters_failure_does_not_keep_another_from_being_served() -> None:
    pools = PoolWorld.of("alpha", "beta", max=1)
    pools.reserve(2)
    pools.world.failing["groups.set_desired"] = [Refused("ScalingActivityInProgress", "busy")]
    pools.run()
    assert (pools.desired("alpha"), pools.desired("beta")) == (0, 1)
    assert pools.told("SetDesiredCapacity")[0]["why"] == "REFUSED"


def test_an_unwritable_audit_does_not_keep_capacity_from_being_given_back() -> None:
    pools = PoolWorld.of()
    pools.reserve(1)
    pools.world.failing["clusters.record"] = [RetryLater("ThrottlingException")]
    pools.run()
    assert pools.desired() == 1


def test_dry_run_records_what_it_would_do_and_does_nothing() -> None:
    pools = PoolWorld.of(dry_run=True, readings=2)
    pools.reserve(2)
    pools.run()
    pools.run()
    told = pools.told("Rebalance")[-1]
    assert (told["target"], told["why"], told["dry_run"]) == ("2", "GROWN", "yes")
    assert (pools.desired(), pools.stored.claims["demo"].count) == (0, 0)
    assert PoolPolicy(instance_type="c5.large").dry_run, "a pool does nothing until it is told to"


def test_every_decision_is_recorded_with_inputs_that_decide_the_same_again() -> None:
    pools = PoolWorld.of()
    pools.reserve(2)
    pools.demand(1)
    pools.run()
    told = pools.told("Rebalance")[-1]
    again = plan_pools(Inputs.model_validate_json(told["inputs"])).decisions[0]
    assert (str(again.target), str(again.reason)) == (told["target"], told["why"]) == ("1", "GROWN")


def test_a_burst_of_events_is_looked_at_once_and_readings_are_not_counted_from_it() -> None:
    pools = PoolWorld.of(readings=2)
    pools.reserve(2)
    pools.run()
    skipped = [pools.run(prompted=True, wait=0.1).skipped for _ in range(20)]
    assert set(skipped) == {"looked at a moment ago"}
    pools.run(prompted=True, wait=20.0)
    assert pools.desired() == 0, "20 s later is still the same reading"
    pools.run(prompted=True, wait=60.0)
    assert pools.desired() == 2


def test_without_a_pool_nothing_is_read() -> None:
    pools = PoolWorld.of()
    pools.world.register(ClusterPolicy(cluster="demo", groups=("demo-workers",)))
    assert pools.run().skipped == "no cluster has a pool"
    assert pools.world.count("reservations.machines") == 0


def test_while_failed_launches_are_answered_the_pool_does_not_ask_for_more() -> None:
    """C17 and the pool would otherwise undo each other for ever."""
    pools = PoolWorld.of()
    pools.reserve(2)
    memory = Capacity(at=pools.world.now, failure=pools.world.now, wanted=2, desired=0, times=1, done=True)
    merge_group(pools.world.ports, GroupFacts(group="demo-workers", named=Named(at=1.0, cluster="demo"), capacity=memory), wake=False)
    pools.run()
    assert pools.told("Rebalance")[-1]["why"] == "COOLING_DOWN"
    assert pools.desired() == 0


def test_a_policy_that_cannot_work_is_refused_with_the_field() -> None:
    pool = {"instance_type": "c5.large"}
    for groups, wrong in (((), pool), (("a", "b"), pool), (("a",), {**pool, "group": "b"}), (("a",), {**pool, "max": 1, "min": 2})):
        with pytest.raises(ValidationError, match="pool"):
            ClusterPolicy.model_validate({"cluster": "demo", "groups": groups, "pool": wrong})
    with pytest.raises(ValidationError, match=r"pool\.instances"):
        ClusterPolicy.model_validate({"cluster": "demo", "groups": ["a"], "pool": {**pool, "group": "a", "instances": ["i-00000000"]}})
    assert ClusterPolicy.model_validate({"cluster": "demo", "groups": ["a"], "pool": pool}).pool is not None


# ---- clusters without a group: listed instances


def listed(*numbers: int) -> tuple[PoolWorld, list[str]]:
    ids = [f"i-{number:017x}" for number in numbers]
    pools = PoolWorld.of(groups=False, instances=tuple(ids))
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
    assert ("reservations.stop", two) in pools.world.calls
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
    """What the cluster owns would be terminated on leaving; what is of another kind would not be paid for by the reservation."""
    pools, (one,) = listed(1)
    pools.world.machines[one].tags = dict(tags)
    pools.kinds[one] = dict(kind)
    pools.reserve(2)
    pools.run()
    assert pools.world.machines[one].state == "stopped"


def test_each_half_done_effect_on_listed_instances_is_finished_by_the_next_run() -> None:
    pools, (one,) = listed(1)
    pools.reserve(1)
    pools.world.failing = {"reservations.start": [RetryLater("busy")]}
    with pytest.raises(RetryLater, match="StartInstances"):
        pools.run()
    pools.world.failing = {"instances.tag": [RetryLater("busy")]}
    with pytest.raises(RetryLater, match="TagElastic"):
        pools.run()
    pools.run()
    assert (pools.world.machines[one].state, pools.tagged(one)) == ("running", True)
    pools.reserve(0)
    pools.world.failing = {"reservations.untag": [RetryLater("busy")]}
    with pytest.raises(RetryLater, match="UntagElastic"):
        pools.run()
    pools.run()
    pools.world.resync()
    pools.world.failing = {"reservations.stop": [RetryLater("busy")]}
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
    assert pools.world.count("reservations.stop") == 0


def test_an_instance_that_ec2_does_not_show_is_not_forgotten_and_one_that_is_terminated_is() -> None:
    """Forgotten while it runs, it would never be stopped."""
    pools, (one, two) = listed(1, 2)
    pools.reserve(1)
    pools.run()
    pools.hidden.add(one)
    pools.run()
    assert pools.stored.claims["demo"].held == (one,)
    assert one in pools.told("Rebalance")[-1]["detail"]
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
    assert (pools.world.machines[one].state, pools.tagged(one), pools.stored.claims["demo"].held) == ("stopped", False, ())


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
