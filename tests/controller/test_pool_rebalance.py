"""C30 in the shell: what the reserved pool does to groups and to listed instances, when reads fail, writes race and
things break half way.
"""

from __future__ import annotations

import pytest
from dyntrain.controller.contract.errors import GiveUp, Refused, RetryLater
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.contract.pool_policy import PoolPolicy
from dyntrain.controller.core.pool.inputs import Inputs
from dyntrain.controller.core.pool.plan import plan_pools
from dyntrain.controller.core.records.facts import ClusterStatement
from dyntrain.controller.core.records.groups import Capacity, GroupFacts
from dyntrain.controller.loops.intake import merge_group
from dyntrain.controller.pool.rebalance import rebalance
from fakes import ELASTIC
from pool_world import PoolWorld
from pydantic import ValidationError


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
    assert pools.world.count("groups.terminate") == 0, (
        "the group's scale-in hook lets the job release them at a boundary"
    )


@pytest.mark.parametrize(
    "read",
    ["reservations.reserved", "reservations.capacity", "reservations.machines", "groups.members", "groups.sizes"],
)
@pytest.mark.parametrize("error", [RetryLater("RequestLimitExceeded: slow down"), GiveUp("UnauthorizedOperation")])
def test_a_throttled_or_refused_read_changes_nothing_and_is_told(read: str, error: Exception) -> None:
    pools = PoolWorld.of()
    pools.reserve(3)
    before = pools.stored
    pools.world.failing[read] = [error]
    done = pools.run()
    assert not done.complete
    assert (pools.desired(), pools.stored) == (0, before)
    assert str(error) in pools.entries("Rebalance")[-1]["inputs"]
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
    pools.world.before["ledger.put"] = [lambda: rebalance(pools.ports, pools.world.registry, ELASTIC)]
    loser = pools.run()
    assert loser.skipped == "another run has decided meanwhile"
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
    assert pools.entries("SetDesiredCapacity")[0]["why"] == "REFUSED"


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
    entry = pools.entries("Rebalance")[-1]
    assert (entry["target"], entry["why"], entry["dry_run"]) == ("2", "GROWN", "yes")
    assert (pools.desired(), pools.stored.claims["demo"].count) == (0, 0)
    assert PoolPolicy(instance_type="c5.large").dry_run, "a pool does nothing until it is told to"


def test_every_decision_is_recorded_with_inputs_that_decide_the_same_again() -> None:
    pools = PoolWorld.of()
    pools.reserve(2)
    pools.demand(1)
    pools.run()
    entry = pools.entries("Rebalance")[-1]
    again = plan_pools(Inputs.model_validate_json(entry["inputs"])).decisions[0]
    assert (str(again.target), str(again.reason)) == (entry["target"], entry["why"]) == ("1", "GROWN")


def test_a_burst_of_events_is_looked_at_once_and_readings_are_not_counted_from_it() -> None:
    pools = PoolWorld.of(readings=2)
    pools.reserve(2)
    pools.run()
    skipped = [pools.run(prompted=True, wait=0.1).skipped for _ in range(20)]
    assert set(skipped) == {"another run was a moment ago"}
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
    merge_group(
        pools.world.ports,
        GroupFacts(group="demo-workers", named=ClusterStatement(at=1.0, cluster="demo"), capacity=memory),
        wake=False,
    )
    pools.run()
    assert pools.entries("Rebalance")[-1]["why"] == "COOLING_DOWN"
    assert pools.desired() == 0


def test_a_policy_that_cannot_work_is_refused_with_the_field() -> None:
    pool = {"instance_type": "c5.large"}
    for groups, wrong in (
        ((), pool),
        (("a", "b"), pool),
        (("a",), {**pool, "group": "b"}),
        (("a",), {**pool, "max": 1, "min": 2}),
    ):
        with pytest.raises(ValidationError, match="pool"):
            ClusterPolicy.model_validate({"cluster": "demo", "groups": groups, "pool": wrong})
    with pytest.raises(ValidationError, match=r"pool\.instances"):
        ClusterPolicy.model_validate(
            {"cluster": "demo", "groups": ["a"], "pool": {**pool, "group": "a", "instances": ["i-00000000"]}}
        )
    assert ClusterPolicy.model_validate({"cluster": "demo", "groups": ["a"], "pool": pool}).pool is not None


def test_a_burst_of_events_reads_once_also_when_reading_fails() -> None:
    """Else every event of an account in trouble would read all of EC2 again, and be throttled all the more."""
    pools = PoolWorld.of()
    pools.reserve(2)
    pools.world.failing["reservations.machines"] = [RetryLater("Throttling") for _ in range(20)]
    for _ in range(20):
        pools.run(prompted=True, wait=0.1)
    assert pools.world.count("reservations.machines") == 1


def test_a_closed_clusters_group_is_asked_for_nothing_and_its_share_goes_to_others() -> None:
    pools = PoolWorld.of("demo", "other", min=1)
    world = pools.world
    policy = world.registry.policy("demo")
    assert policy is not None
    pools.reserve(2)
    pools.run()
    assert (pools.desired(), pools.desired("other")) == (1, 1)
    closing = {"after_job": "terminate", "idle_hours": 1, "groups": ("demo-workers",)}
    world.register(policy.model_copy(update=closing))
    master = world.launch(1000, base=True, NodeType="Master")
    world.hear(world.report(master))
    world.wait(2 * 3600)
    world.resync()
    world.machines[master].state = "terminated"
    world.hear(world.state_event(master, "terminated"))
    pools.run()
    assert pools.desired() == 1, "each member gives up its place itself, which a group at its minimum would refuse"
    world.limits["demo-workers"] = (0, 100, 0)
    for _ in range(4):
        pools.run()
    assert (pools.desired(), pools.desired("other")) == (0, 2)
