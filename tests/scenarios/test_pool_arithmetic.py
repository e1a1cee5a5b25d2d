"""C30: the arithmetic of the reserved pool against examples worked by hand."""

from __future__ import annotations

import pytest
from dyntrain.controller.core.pool.inputs import Proposal, units
from dyntrain.controller.core.pool.plan import PoolReason
from pool_lines import NOW, A, B, a_pool, bought, claimed, followed, only, planned, runs, slots, step


def test_c30_regional_flexible_units_are_shared_by_all_sizes_of_a_family() -> None:
    """4 c5.xlarge = 32 units. 3 c5.large use 12, 1 c5.2xlarge uses 16: 4 are left, which is one c5.large and no
    c5.xlarge.
    """
    lines = (bought("c5.xlarge", 4), runs("c5.large", 3), runs("c5.2xlarge", 1, B))
    assert only(*lines, pool=a_pool("c5.large")).target == 1
    assert only(*lines, pool=a_pool("c5.xlarge")).target == 0
    assert only(*lines, pool=a_pool("m5.large")).target == 0


def test_c30_fractions_of_units_and_bare_metal() -> None:
    """1 t3.small = 1 unit = 4 nano; one micro takes 0.5, which leaves 2 nano. 1 c5.metal = 192 units; a 12xlarge takes
    96: 24 large are left.
    """
    assert only(bought("t3.small", 1), runs("t3.micro"), pool=a_pool("t3.nano")).target == 2
    assert only(bought("c5.metal", 1), runs("c5.12xlarge"), pool=a_pool("c5.large")).target == 24


@pytest.mark.parametrize("kind", ["g4ad", "g4dn", "g5", "g5g", "inf1"])
def test_c30_inflexible_families_match_by_exact_type(kind: str) -> None:
    """3 xlarge in the region, 1 xlarge runs anywhere: 2 are left. The 2xlarge that runs uses none of them, and there is
    none for a 2xlarge.
    """
    lines = (bought(f"{kind}.xlarge", 3), runs(f"{kind}.xlarge", 1, B), runs(f"{kind}.2xlarge", 5))
    assert only(*lines, pool=a_pool(f"{kind}.xlarge")).target == 2
    assert only(*lines, pool=a_pool(f"{kind}.2xlarge")).target == 0


def test_c30_zonal_reservations_match_zone_and_size_exactly() -> None:
    """5 m5.large in zone a; there 2 m5.large and 1 m5.xlarge run, in zone b 4 m5.large: 5 - 2 = 3 for zone a, none for
    b or another size.
    """
    lines = (bought("m5.large", 5, A), runs("m5.large", 2, A), runs("m5.xlarge", 1, A), runs("m5.large", 4, B))
    assert only(*lines, pool=a_pool("m5.large")).target == 3
    assert only(*lines, pool=a_pool("m5.large", zone=B)).target == 0
    assert only(*lines, pool=a_pool("m5.xlarge")).target == 0
    assert only(*lines, pool=a_pool("m5.large", zone=None)).target == 0, "nobody can say where such a pool launches"


def test_c30_zonal_are_used_up_before_regional_ones() -> None:
    """2 zonal and 2 regional (8 units) m5.large; 3 run in zone a: 2 on the zonal, 1 on the regional ones; 8 - 4 = 4
    units, one m5.large left.
    """
    assert (
        only(bought("m5.large", 2, A), bought("m5.large", 2), runs("m5.large", 3), pool=a_pool("m5.large")).target == 1
    )


def test_c30_stopped_and_spot_instances_use_nothing() -> None:
    """3 reserved. 1 runs, 1 is starting; 4 are stopped, stopping, ending or Spot: 3 - 2 = 1."""
    idle = [runs("c5.large", 1, state=state) for state in ("stopped", "stopping", "shutting-down")]
    lines = (
        bought("c5.large", 3),
        runs("c5.large"),
        runs("c5.large", state="pending"),
        runs("c5.large", lifecycle="spot"),
        *idle,
    )
    assert only(*lines, pool=a_pool("c5.large")).target == 1


def test_c30_platform_and_tenancy_keep_reservations_apart() -> None:
    """2 Linux (spelled with VPC), 3 Windows and 4 dedicated c5.large: each for its own kind; only the Linux ones are
    size-flexible.
    """
    lines = (
        bought("c5.large", 2, platform="Linux/UNIX (Amazon VPC)"),
        bought("c5.large", 3, platform="Windows", id="ri-windows"),
        bought("c5.large", 4, tenancy="dedicated", id="ri-dedicated"),
    )
    assert only(*lines, pool=a_pool("c5.large")).target == 2
    assert only(*lines, pool=a_pool("c5.large", platform="Windows")).target == 3
    assert only(*lines, pool=a_pool("c5.large", tenancy="dedicated")).target == 4
    assert only(*lines, pool=a_pool("c5.xlarge")).target == 1
    assert only(*lines, pool=a_pool("c5.xlarge", platform="Windows")).target == 0


def test_c30_an_idle_capacity_reservation_is_room_for_instances_of_its_zone() -> None:
    """4 slots in zone a, 3 idle, no Reserved Instance: 3. The instance inside is not counted once more. A targeted one
    counts when named.
    """
    inside = runs("p3.2xlarge", capacity_reservation="cr-1")
    assert only(slots("p3.2xlarge", 4, 3), inside, pool=a_pool("p3.2xlarge")).target == 3
    assert only(slots("p3.2xlarge", 4, 3), inside, pool=a_pool("p3.2xlarge", zone=B)).target == 0
    targeted = slots("p3.2xlarge", 4, 3, targeted=True)
    assert only(targeted, inside, pool=a_pool("p3.2xlarge")).target == 0
    assert only(targeted, inside, pool=a_pool("p3.2xlarge", capacity_reservations=("cr-1",))).target == 3


def test_c30_regional_instances_that_pay_for_an_idle_slot_are_not_counted_twice() -> None:
    """2 regional m5.large (8 units) pay for 2 slots, both idle: 2 instances can run for nothing more, not 4. With 3
    bought: 3.
    """
    assert only(bought("m5.large", 2), slots("m5.large", 2, 2), pool=a_pool("m5.large")).target == 2
    assert only(bought("m5.large", 3), slots("m5.large", 2, 2), pool=a_pool("m5.large")).target == 3
    # uses one of the slots that are paid for: 3 - 2 and the other slot
    inside = runs("m5.large", capacity_reservation="cr-1")
    assert only(bought("m5.large", 3), slots("m5.large", 2, 1), inside, pool=a_pool("m5.large")).target == 2


def test_c30_an_instance_in_a_capacity_reservation_leaves_the_zonal_one_idle_and_counts_once() -> None:
    """1 zonal m5.large and 2 slots; one instance runs, inside a slot. The zonal one is idle and so is 1 slot: 2.
    Counted twice it would be 1.
    """
    inside = runs("m5.large", capacity_reservation="cr-1")
    assert only(bought("m5.large", 1, A), slots("m5.large", 2, 1), inside, pool=a_pool("m5.large")).target == 2


def test_c30_what_ends_soon_or_is_not_active_does_not_count() -> None:
    """Margin one hour. 1 lasts 2 hours: counts. 2 end in 30 minutes, 4 are retired, 8 slots end in 59 minutes: do
    not.
    """
    lines = (
        bought("c5.large", 1, end=NOW + 7200),
        bought("c5.large", 2, end=NOW + 1800),
        bought("c5.large", 4, state="retired"),
        slots("c5.large", 8, 8, end=NOW + 3540),
    )
    assert only(*lines, pool=a_pool("c5.large")).target == 1


def test_c30_base_headroom_minimum_and_maximum() -> None:
    """10 reserved, 3 used by others, base 2 uses 2 more: 5 spare. 2 + 5 - 1 = 6; at most 4 -> 4; at least 8 -> 8,
    reserved or not.
    """
    lines = (bought("c5.large", 10), runs("c5.large", 3))
    wanted = {"base": 2, "headroom": 1}
    assert only(*lines, pool=a_pool("c5.large", **wanted)).target == 6
    assert only(*lines, pool=a_pool("c5.large", **{**wanted, "max": 4})).target == 4
    assert only(*lines, pool=a_pool("c5.large", min=8, **wanted)).target == 8
    assert only(*lines, pool=a_pool("c5.large", most=5, **wanted)).target == 5, "the group's own maximum"


def test_c30_the_pools_own_instances_are_not_somebody_elses_demand() -> None:
    """4 reserved, the pool has 3 of them and asked for 3; nobody else runs: it may have all 4. When 2 others start:
    2.
    """
    pool = a_pool("c5.large", current=3)
    assert only(bought("c5.large", 4), runs("c5.large", 3, pool="demo"), pool=pool).target == 4
    assert only(bought("c5.large", 4), runs("c5.large", 3, pool="demo"), runs("c5.large", 2, B), pool=pool).target == 2


def test_c30_two_clusters_never_claim_the_same_reservation() -> None:
    """3 reserved; two clusters want as many as there are: the first by name gets 3, the other 0; after that, who came
    first keeps them.
    """
    one, two = a_pool("c5.large", "alpha"), a_pool("c5.large", "beta")
    first = planned(bought("c5.large", 3), pools=(one, two))
    assert {d.pool.cluster: d.target for d in first.decisions} == {"alpha": 3, "beta": 0}
    claims = {"beta": claimed(two, 3)}
    second = planned(bought("c5.large", 3), pools=(one, two.model_copy(update={"current": 3})), claims=claims)
    assert {d.pool.cluster: d.target for d in second.decisions} == {"alpha": 0, "beta": 3}, (
        "claimed, though nothing of it runs yet"
    )


def test_c30_a_cluster_of_higher_priority_waits_until_the_other_has_let_go() -> None:
    """2 reserved, both run for beta. Alpha is entitled to 2: beta is told to go to 0 at once, alpha grows when they are
    gone.
    """
    alpha, beta = a_pool("c5.large", "alpha", priority=1), a_pool("c5.large", "beta", current=2)
    held, claims = runs("c5.large", 2, pool="beta"), {"beta": claimed(beta, 2)}
    before = {
        d.pool.cluster: d for d in planned(bought("c5.large", 2), held, pools=(alpha, beta), claims=claims).decisions
    }
    assert (before["alpha"].target, before["alpha"].reason, before["beta"].target) == (0, PoolReason.HELD_BY_OTHERS, 0)
    gone = planned(
        bought("c5.large", 2), pools=(alpha, beta.model_copy(update={"current": 0})), claims={"beta": claimed(beta, 0)}
    )
    assert {d.pool.cluster: d.target for d in gone.decisions} == {"alpha": 2, "beta": 0}


def test_c30_a_claim_that_nobody_renews_ends() -> None:
    """2 reserved, claimed by a cluster whose policy is gone: first nothing is left, after the lease all is."""
    stranger = a_pool("c5.large", "gone")
    kept = only(bought("c5.large", 2), pool=a_pool("c5.large"), claims={"gone": claimed(stranger, 2)})
    freed = only(bought("c5.large", 2), pool=a_pool("c5.large"), claims={"gone": claimed(stranger, 2, expires=NOW - 1)})
    assert (kept.target, freed.target) == (0, 2)


def test_c30_a_partial_read_changes_nothing() -> None:
    """The same reading that would grow the pool, but incomplete: size and claims stay as they are."""
    pool = a_pool("c5.large", current=1)
    claims = {"demo": claimed(pool, 1)}
    plan = planned(bought("c5.large", 5), pools=(pool,), claims=claims, problem="RequestLimitExceeded")
    assert (plan.decisions[0].target, plan.decisions[0].reason, plan.claims) == (1, PoolReason.PARTIAL_READ, claims)
    assert not plan.decisions[0].acts


def test_c30_a_change_needs_equal_readings_in_a_row_and_a_burst_counts_as_one() -> None:
    """Three readings: 2 2 2 -> on the third. A single other reading in between starts the count anew. Readings 1 s
    apart are one.
    """
    pool = a_pool("c5.large", readings=3)
    assert followed(pool, [2, 2, 2, 2]) == [0, 0, 2, 2]
    assert followed(pool, [2, 2, 0, 2, 2, 2]) == [0, 0, 0, 0, 0, 2]
    assert followed(pool, [2, 3, 4, 4, 4]) == [0, 0, 0, 0, 4], "more each time is no agreement yet"
    assert followed(pool.model_copy(update={"current": 5}), [3, 2, 1, 1, 1]) == [5, 5, 5, 5, 1], "nor is less each time"
    assert followed(pool, [2] * 50, seconds=1.0) == [0] * 50
    assert followed(pool, [2] * 130, seconds=1.0)[-1] == 2, "nor does a burst put the next reading off for ever"


def test_c30_demand_that_comes_and_goes_does_not_make_the_pool_flap() -> None:
    assert set(followed(a_pool("c5.large", readings=2, current=2), [2, 3, 2, 1] * 10)) == {2}


def test_an_empty_pool_below_its_minimum_is_raised_at_once() -> None:
    """The minimum is the operator's word: it does not wait for readings."""
    assert step(a_pool("c5.large", min=2, readings=5), None, 0, NOW).target == 2


def test_failed_launches_and_a_missing_group_keep_the_pool_from_growing() -> None:
    cooling = only(bought("c5.large", 3), pool=a_pool("c5.large", growable=False))
    frozen = only(bought("c5.large", 3), pool=a_pool("c5.large", current=1, frozen="the group x does not exist"))
    assert (cooling.target, cooling.reason) == (0, PoolReason.COOLING_DOWN)
    assert (frozen.target, frozen.reason) == (1, PoolReason.FROZEN)


def test_units_of_sizes_as_aws_lists_them() -> None:
    listed = {
        "nano": 0.25,
        "micro": 0.5,
        "small": 1,
        "medium": 2,
        "large": 4,
        "xlarge": 8,
        "2xlarge": 16,
        "3xlarge": 24,
        "9xlarge": 72,
    }
    listed |= {
        "10xlarge": 80,
        "18xlarge": 144,
        "24xlarge": 192,
        "32xlarge": 256,
        "56xlarge": 448,
        "112xlarge": 896,
        "metal-24xl": 192,
        "metal-48xl": 384,
    }
    assert {size: units(f"m7i.{size}") for size in listed} == listed
    assert units("zz9.metal") is None
    assert units("m5.huge") is None
    assert units("m5.24xl") is None


def test_readings_of_a_claim_that_lapsed_are_forgotten() -> None:
    """A decision must not rest on what was read before the controller was away."""
    pool = a_pool("c5.large", readings=2)
    old = claimed(pool, 0, readings=(Proposal(at=NOW - 9000, proposal=2),), expires=NOW - 1)
    assert step(pool, old, 2, NOW).target == 0
    assert step(pool, old.model_copy(update={"expires": NOW + 1}), 2, NOW).target == 2
