"""How many reserved instances each cluster's pool should have: one decision on all pools, from one reading.

1. Entitlement: in order of priority, each pool gets clamp(base + spare - headroom, min, max) of the remaining capacity.
2. Growth: a pool grows only into capacity that no other pool holds or has claimed, whatever its entitlement.
3. Hysteresis: a size is applied only after `readings` consecutive readings that asked for exactly this size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dyntrain.controller.core.pool.inputs import Claim, Inputs, Pool, Proposal
from dyntrain.controller.core.pool.stock import Entry, Stock, stock_of

UNLIMITED = 1_000_000  # more instances than anybody has


class PoolReason(StrEnum):
    UNCHANGED = "UNCHANGED"
    GROWN = "GROWN"
    SHRUNK = "SHRUNK"
    RAISED_TO_MINIMUM = "RAISED_TO_MINIMUM"
    AWAITING_READINGS = "AWAITING_READINGS"
    HELD_BY_OTHERS = "HELD_BY_OTHERS"
    COOLING_DOWN = "COOLING_DOWN"
    WAITS_FOR_WINDOW = "WAITS_FOR_WINDOW"
    FROZEN = "FROZEN"
    CLOSED = "CLOSED"
    PARTIAL_READ = "PARTIAL_READ"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]


_SENTENCES = {
    PoolReason.UNCHANGED: "the pool has what it should have",
    PoolReason.GROWN: "reserved instances are idle",
    PoolReason.SHRUNK: "somebody else needs the reserved instances",
    PoolReason.RAISED_TO_MINIMUM: "the pool was below its minimum",
    PoolReason.AWAITING_READINGS: "a change waits until enough readings in a row ask for the same size",
    PoolReason.HELD_BY_OTHERS: "another cluster still holds instances to which the pool is entitled",
    PoolReason.COOLING_DOWN: "no growth now: launches failed a short time ago, or nothing is left to start",
    PoolReason.WAITS_FOR_WINDOW: "the pool gives instances back when one of the policy's leave_windows opens",
    PoolReason.FROZEN: "the pool cannot be changed now",
    PoolReason.CLOSED: "the cluster has no use for instances now",
    PoolReason.PARTIAL_READ: "a read failed or was incomplete: no pool is changed",
}


@dataclass(frozen=True)
class PoolDecision:
    """The decision on one pool. `spare` is the number of reserved instances that the pool may use. `entitled` is the
    size within the limits. `proposal` also respects the instances that other pools still hold.
    """

    pool: Pool
    held: int
    spare: int
    entitled: int
    proposal: int
    target: int
    reason: PoolReason
    claim: Claim | None

    @property
    def sentence(self) -> str:
        if self.reason is PoolReason.WAITS_FOR_WINDOW:
            return f"{self.reason.sentence}, at {self.pool.opens}"
        return self.pool.frozen or self.pool.closed or self.reason.sentence

    @property
    def acts(self) -> bool:
        return self.target != self.pool.current and not self.pool.dry_run


@dataclass(frozen=True)
class Plan:
    """The decisions on all pools. `entries` are the lines of the arithmetic. The new `claims` are stored before any
    action, and only over the version that was read.
    """

    decisions: tuple[PoolDecision, ...]
    claims: Mapping[str, Claim]
    entries: tuple[Entry, ...]


def plan_pools(inputs: Inputs) -> Plan:
    """Plan all pools. Pure: the same inputs give the same plan. With `inputs.problem` the plan changes nothing."""
    held_counts = {
        pool.cluster: sum(use.count for use in inputs.usage if use.pool == pool.cluster and use.running)
        for pool in inputs.pools
    }
    if inputs.problem:
        unchanged = tuple(
            _unchanged_decision(
                pool, held_counts[pool.cluster], PoolReason.PARTIAL_READ, inputs.claims.get(pool.cluster)
            )
            for pool in inputs.pools
        )
        return Plan(unchanged, inputs.claims, (Entry(f"not everything could be read: {inputs.problem}", 0),))
    idle, entries = stock_of(inputs)
    live_claims = {cluster: claim for cluster, claim in inputs.claims.items() if claim.expires > inputs.at}
    idle = _without_absent_pools(idle, inputs, live_claims)
    for pool in inputs.pools:
        idle, _ = _draw(idle, pool, _base_size(pool))
    order = _by_priority(inputs.pools, live_claims)
    entitled, spare = _entitlements(order, idle)
    taken_sizes = {
        pool.cluster: max(
            held_counts[pool.cluster],
            pool.current,
            live_claims[pool.cluster].count if pool.cluster in live_claims else 0,
        )
        for pool in inputs.pools
    }
    decisions = []
    for pool in order:
        name = pool.cluster
        growth_limit = _growth_limit(pool, order, idle, taken_sizes)
        old_claim = inputs.claims.get(name)
        proposal, target, reason, readings = _decide_pool(
            pool, entitled[name], growth_limit, old_claim if name in live_claims else None, inputs.at
        )
        claim = _new_claim(
            pool, held_counts[name] if pool.dry_run else max(target, held_counts[name]), old_claim, readings, inputs.at
        )
        taken_sizes[name] = max(taken_sizes[name], 0 if pool.dry_run else target)
        decisions.append(
            PoolDecision(pool, held_counts[name], spare[name], entitled[name], proposal, target, reason, claim)
        )
    kept_claims = {
        name: claim
        for name, claim in live_claims.items()
        if name not in held_counts
        or any(decision.pool.cluster == name and decision.claim is None for decision in decisions)
    }
    return Plan(
        tuple(decisions),
        {
            **kept_claims,
            **{decision.pool.cluster: decision.claim for decision in decisions if decision.claim is not None},
        },
        entries,
    )


def _unchanged_decision(pool: Pool, held: int, reason: PoolReason, claim: Claim | None) -> PoolDecision:
    return PoolDecision(pool, held, 0, pool.current, pool.current, pool.current, reason, claim)


def _draw(stock: Stock, kind: Pool | Claim, count: int) -> tuple[Stock, int]:
    return stock.draw(kind, kind.zone, kind.capacity_reservations, count)


def _without_absent_pools(idle: Stock, inputs: Inputs, live_claims: Mapping[str, Claim]) -> Stock:
    """The idle stock without the unlaunched claims of clusters whose pool is missing, because their policy cannot be
    read now.
    """
    own_clusters = {pool.cluster for pool in inputs.pools}
    for name, claim in sorted(live_claims.items()):
        if name not in own_clusters:
            launched = sum(use.count for use in inputs.usage if use.pool == name and use.running)
            idle, _ = _draw(idle, claim, claim.count - launched)
    return idle


def _by_priority(pools: Sequence[Pool], live_claims: Mapping[str, Claim]) -> list[Pool]:
    def rank(pool: Pool) -> tuple[bool, int, float, str]:
        claim = live_claims.get(pool.cluster)
        return (
            pool.dry_run,
            -pool.priority,
            claim.since if claim is not None and claim.count else float("inf"),
            pool.cluster,
        )

    return sorted(pools, key=rank)


def _base_size(pool: Pool) -> int:
    return 0 if pool.closed else pool.base


def _within_limits(pool: Pool, count: int) -> int:
    """The count within the limits of the policy and of the group or list of instances."""
    if pool.closed:
        return pool.least
    policy_size = max(pool.min, min(count, pool.max))
    maximum = pool.most if pool.most is not None else policy_size
    return max(pool.least, min(policy_size, maximum))


def _entitlements(order: Sequence[Pool], idle: Stock) -> tuple[dict[str, int], dict[str, int]]:
    entitled, spare = {}, {}
    for pool in order:
        _, spare[pool.cluster] = _draw(idle, pool, UNLIMITED)
        entitled[pool.cluster] = _within_limits(pool, pool.base + spare[pool.cluster] - pool.headroom)
        headroom = 0 if pool.closed else pool.headroom
        idle, _ = _draw(idle, pool, max(entitled[pool.cluster] - _base_size(pool), 0) + headroom)
    return entitled, spare


def _growth_limit(pool: Pool, order: Sequence[Pool], idle: Stock, taken: Mapping[str, int]) -> int:
    """The size to which the pool may grow while the other pools keep their held or claimed instances."""
    for other_pool in order:
        if other_pool.cluster != pool.cluster:
            idle, _ = _draw(idle, other_pool, taken[other_pool.cluster] - _base_size(other_pool))
    _, available = _draw(idle, pool, UNLIMITED)
    return _within_limits(pool, pool.base + available - pool.headroom)


def _decide_pool(
    pool: Pool, entitled: int, growth_limit: int, live_claim: Claim | None, at: float
) -> tuple[int, int, PoolReason, tuple[Proposal, ...]]:
    """The proposal, the target, the reason, and the readings to store."""
    earlier = live_claim.readings if live_claim is not None else ()
    if pool.frozen:
        return pool.current, pool.current, PoolReason.FROZEN, earlier
    if pool.closed:  # at once, without waiting for a window, because no job is disturbed
        return pool.least, pool.least, PoolReason.CLOSED, ()
    proposal = entitled if entitled <= pool.current else max(pool.current, min(entitled, growth_limit))
    floor = _within_limits(pool, 0)
    if pool.current < floor:
        return proposal, floor, PoolReason.RAISED_TO_MINIMUM, earlier
    if proposal > pool.current and not pool.growable:
        return pool.current, pool.current, PoolReason.COOLING_DOWN, earlier
    readings = _with_reading(pool, proposal, earlier, at)
    target = _agreed_size(pool, readings)
    if target > pool.current:
        return proposal, target, PoolReason.GROWN, readings
    if target < pool.current and pool.opens:
        return proposal, pool.current, PoolReason.WAITS_FOR_WINDOW, readings
    if target < pool.current:
        return proposal, target, PoolReason.SHRUNK, readings
    if proposal != pool.current:
        return proposal, target, PoolReason.AWAITING_READINGS, readings
    return proposal, target, PoolReason.HELD_BY_OTHERS if entitled > pool.current else PoolReason.UNCHANGED, readings


def _with_reading(pool: Pool, proposal: int, readings: tuple[Proposal, ...], at: float) -> tuple[Proposal, ...]:
    """The readings with the present reading added. A reading too soon after the last reading replaces the last
    proposal, but keeps the last time. So a burst of events neither counts as several readings nor delays the next
    reading.
    """
    if readings and at - readings[-1].at < pool.reading_seconds:
        return (*readings[:-1], Proposal(at=readings[-1].at, proposal=proposal))
    return (*readings, Proposal(at=at, proposal=proposal))[-pool.readings :]


def _agreed_size(pool: Pool, readings: tuple[Proposal, ...]) -> int:
    proposals = [reading.proposal for reading in readings[-pool.readings :]]
    return proposals[0] if len(proposals) == pool.readings and len(set(proposals)) == 1 else pool.current


def _new_claim(pool: Pool, count: int, old_claim: Claim | None, readings: tuple[Proposal, ...], at: float) -> Claim:
    continued = old_claim is not None and old_claim.expires > at and old_claim.count > 0
    return Claim(
        count=count,
        instance_type=pool.instance_type,
        zone=pool.zone,
        platform=pool.platform,
        tenancy=pool.tenancy,
        capacity_reservations=pool.capacity_reservations,
        since=old_claim.since if old_claim is not None and continued else at,
        expires=at + pool.lease_seconds,
        readings=readings,
        held=old_claim.held if old_claim is not None else (),
        releasing=old_claim.releasing if old_claim is not None else (),
    )
