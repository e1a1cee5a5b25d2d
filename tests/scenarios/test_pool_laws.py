"""C30: the laws of the reserved pool's arithmetic."""

from __future__ import annotations

from itertools import pairwise

from dyntrain.controller.core.pool.inputs import Capacity, Inputs, Pool, units
from dyntrain.controller.core.pool.plan import plan_pools
from hypothesis import given
from hypothesis import strategies as st
from pool_lines import NOW, A, B, a_pool, bought, claimed, followed, runs, slots

SIZES = ("c5.large", "c5.xlarge", "c5.2xlarge", "g5.xlarge", "m5.large")
kinds, zones, counts = st.sampled_from(SIZES), st.sampled_from((A, B)), st.integers(0, 6)
reserved_lines = st.lists(st.builds(bought, kinds, counts, st.sampled_from((A, B, None))), max_size=5)
usage_lines = st.lists(
    st.builds(
        runs,
        kinds,
        counts,
        zones,
        state=st.sampled_from(("running", "stopped")),
        pool=st.sampled_from((None, "alpha", "beta")),
    ),
    max_size=6,
)


@st.composite
def capacity_lines(draw: st.DrawFn) -> list[Capacity]:
    totals = draw(st.lists(st.tuples(kinds, zones, counts, counts), max_size=3))
    return [
        slots(kind, total, min(idle, total), zone, id=f"cr-{number}")
        for number, (kind, zone, total, idle) in enumerate(totals)
    ]


@st.composite
def some_pool(draw: st.DrawFn, cluster: str) -> Pool:
    least = draw(st.integers(0, 3))
    most = least + draw(st.integers(0, 6))
    more = {
        "current": draw(counts),
        "headroom": draw(st.integers(0, 2)),
        "priority": draw(st.integers(0, 1)),
        "dry_run": draw(st.booleans()),
    }
    return a_pool(
        draw(kinds),
        cluster,
        zone=draw(st.sampled_from((A, B, None))),
        min=least,
        max=most,
        base=draw(st.integers(0, least)),
        **more,
    )


@st.composite
def situations(draw: st.DrawFn) -> Inputs:
    pools = (draw(some_pool("alpha")), draw(some_pool("beta")))
    claims = {
        pool.cluster: claimed(pool, draw(counts), since=NOW - draw(counts)) for pool in pools if draw(st.booleans())
    }
    lines = {
        "reserved": tuple(draw(reserved_lines)),
        "usage": tuple(draw(usage_lines)),
        "capacity": tuple(draw(capacity_lines())),
    }
    return Inputs(at=NOW, pools=pools, claims=claims, **lines)


def bound(inputs: Inputs, pool: Pool) -> float:
    """What all reservations together could hold of the pool's type, were nobody else there."""
    own = units(pool.instance_type) or 1.0
    return sum((units(line.instance_type) or 0) * line.count for line in inputs.reserved) / own + sum(
        line.total for line in inputs.capacity
    )


@given(situations())
def test_law_a_pool_grows_only_into_what_is_reserved_and_never_below_its_minimum(inputs: Inputs) -> None:
    for one in plan_pools(inputs).decisions:
        grown = one.target > max(one.pool.current, one.pool.min)
        assert not grown or one.target <= one.pool.base + one.spare - one.pool.headroom
        assert not grown or one.target - one.pool.base <= bound(inputs, one.pool)
        assert one.target >= min(one.pool.min, one.pool.max)


@given(situations(), st.integers(0, 8), st.integers(1, 6))
def test_law_two_pools_of_one_kind_never_hold_more_than_there_is(inputs: Inputs, there: int, more: int) -> None:
    """Whoever grows leaves the other what it holds and has claimed."""
    alpha, beta = (
        pool.model_copy(update={"instance_type": "g5.xlarge", "zone": None, "min": 0, "base": 0, "dry_run": False})
        for pool in inputs.pools
    )
    usage = tuple(line for line in inputs.usage if line.pool is not None and line.instance_type == "g5.xlarge")
    known = inputs.model_copy(
        update={"reserved": (bought("g5.xlarge", there),), "capacity": (), "usage": usage, "pools": (alpha, beta)}
    )
    decided = {one.pool.cluster: one for one in plan_pools(known).decisions}
    for one, other in ((decided["alpha"], decided["beta"]), (decided["beta"], decided["alpha"])):
        claim = known.claims.get(other.pool.cluster)
        others = max(other.held, other.pool.current, other.target, claim.count if claim is not None else 0)
        assert one.target <= one.pool.current or one.target + others <= there


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(1, 4))
def test_law_no_flapping_each_change_was_asked_for_by_enough_equal_readings_in_a_row(
    spares: list[int], readings: int
) -> None:
    sizes = [0, *followed(a_pool("c5.large", readings=readings), spares)]
    for number, (before, after) in enumerate(pairwise(sizes)):
        readings_before = spares[max(0, number + 1 - readings) : number + 1]
        assert after == before or (len(readings_before) == readings and set(readings_before) == {after})


@given(situations())
def test_law_what_the_audit_records_decides_the_same_again(inputs: Inputs) -> None:
    again = Inputs.model_validate_json(inputs.model_dump_json(exclude_defaults=True))
    assert plan_pools(again) == plan_pools(inputs)


@given(situations())
def test_law_a_closed_pool_has_what_it_must_and_takes_nothing_from_the_other(inputs: Inputs) -> None:
    """As if there were no such pool, but for what it still holds."""
    alpha, beta = inputs.pools
    none = {"current": 0, "dry_run": False}
    usage = tuple(line for line in inputs.usage if line.pool != "alpha")
    claims = {name: claim for name, claim in inputs.claims.items() if name != "alpha"}
    with_closed, alone = (
        inputs.model_copy(update={"pools": pools, "usage": usage, "claims": claims})
        for pools in ((alpha.model_copy(update={"closed": "over", **none}), beta), (beta,))
    )
    decided = {one.pool.cluster: one for one in plan_pools(with_closed).decisions}
    assert decided["alpha"].target == 0
    (expected,) = plan_pools(alone).decisions
    assert decided["beta"].target == expected.target


@given(st.permutations(["alpha", "beta"]), situations())
def test_law_the_order_in_which_things_were_read_does_not_matter(names: list[str], inputs: Inputs) -> None:
    ordered = {pool.cluster: pool for pool in inputs.pools}
    turned = inputs.model_copy(
        update={
            "pools": tuple(ordered[name] for name in names),
            "usage": inputs.usage[::-1],
            "reserved": inputs.reserved[::-1],
        }
    )
    assert {d.pool.cluster: d.target for d in plan_pools(turned).decisions} == {
        d.pool.cluster: d.target for d in plan_pools(inputs).decisions
    }
