"""Decide how many reserved instances each cluster's pool should have. One decision covers all pools and uses one
reading.

The size of a pool follows from three rules:
1. Entitlement: in order of priority, each pool may use clamp(base + spare - headroom, min, max) instances. `spare` is
   the number of idle reserved instances that pools of higher priority leave.
2. Growth: whatever its entitlement, a pool grows only by reserved instances that no other pool holds or has claimed.
3. Hysteresis: a pool gets a new size only after `readings` consecutive readings have asked for exactly this size.
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
        return _REASON_SENTENCES[self]


_REASON_SENTENCES = {
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
    """The decision on one pool. `spare` is the number of idle reserved instances that the pool may use, and `entitled`
    is the size that follows from `spare` and the pool's limits. `proposal` is the size that the present inputs call
    for: unlike `entitled`, `proposal` includes no instances that other pools still hold.
    """

    pool: Pool
    held: int  # number of the pool's running instances
    spare: int  # idle reserved instances that it may use
    entitled: int  # size that the spare instances and the pool's limits allow
    proposal: int  # size that the present inputs call for
    target: int  # the new size
    reason: PoolReason
    claim: Claim | None  # the new claim, to be stored

    @property
    def sentence(self) -> str:
        if self.reason is PoolReason.WAITS_FOR_WINDOW:
            return f"{self.reason.sentence}, at {self.pool.opens}"
        return self.pool.frozen or self.pool.closed or self.reason.sentence

    @property
    def acts(self) -> bool:  # whether the decision changes the pool's size
        return self.target != self.pool.current and not self.pool.dry_run


@dataclass(frozen=True)
class Plan:
    """The decisions on all pools. `entries` are lines that show users how the pools get their sizes. The new `claims`
    are stored before any action, and only if nobody has changed the stored claims since the reading.
    """

    decisions: tuple[PoolDecision, ...]  # one for each pool
    claims: Mapping[str, Claim]  # by cluster
    entries: tuple[Entry, ...]  # lines of the arithmetic, for people


def plan_pools(inputs: Inputs) -> Plan:
    """Plan the sizes of all pools. Pure: the same inputs give the same plan. If `inputs.problem` is set, the plan
    changes nothing.
    """
    held_counts = {
        pool.cluster: sum(usage.count for usage in inputs.usage if usage.pool == pool.cluster and usage.running)
        for pool in inputs.pools
    }
    if inputs.problem:
        unchanged_decisions = tuple(
            _unchanged_decision(
                pool, held_counts[pool.cluster], PoolReason.PARTIAL_READ, inputs.claims.get(pool.cluster)
            )
            for pool in inputs.pools
        )
        return Plan(unchanged_decisions, inputs.claims, (Entry(f"not everything could be read: {inputs.problem}", 0),))
    idle_stock, entries = stock_of(inputs)
    live_claims = {cluster: claim for cluster, claim in inputs.claims.items() if claim.expires > inputs.at}
    idle_stock = _without_absent_pools(idle_stock, inputs, live_claims)
    for pool in inputs.pools:
        idle_stock, _ = _draw(idle_stock, pool, _base_size(pool))
    pools_by_priority = _sort_by_priority(inputs.pools, live_claims)
    entitled_sizes, spare_counts = _entitlements(pools_by_priority, idle_stock)
    taken_sizes = {
        pool.cluster: max(
            held_counts[pool.cluster],
            pool.current,
            live_claims[pool.cluster].count if pool.cluster in live_claims else 0,
        )
        for pool in inputs.pools
    }
    decisions = []
    for pool in pools_by_priority:
        cluster_name = pool.cluster
        growth_limit = _growth_limit(pool, pools_by_priority, idle_stock, taken_sizes)
        old_claim = inputs.claims.get(cluster_name)
        proposal, target, reason, readings = _decide_pool(
            pool,
            entitled_sizes[cluster_name],
            growth_limit,
            old_claim if cluster_name in live_claims else None,
            inputs.at,
        )
        claim = _new_claim(
            pool,
            held_counts[cluster_name] if pool.dry_run else max(target, held_counts[cluster_name]),
            old_claim,
            readings,
            inputs.at,
        )
        taken_sizes[cluster_name] = max(taken_sizes[cluster_name], 0 if pool.dry_run else target)
        decisions.append(
            PoolDecision(
                pool,
                held_counts[cluster_name],
                spare_counts[cluster_name],
                entitled_sizes[cluster_name],
                proposal,
                target,
                reason,
                claim,
            )
        )
    kept_claims = {
        cluster_name: claim
        for cluster_name, claim in live_claims.items()
        if cluster_name not in held_counts
        or any(decision.pool.cluster == cluster_name and decision.claim is None for decision in decisions)
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


def _without_absent_pools(idle_stock: Stock, inputs: Inputs, live_claims: Mapping[str, Claim]) -> Stock:
    """The idle stock minus the unused claims of clusters whose pools are missing in the inputs. A pool is missing in
    the inputs if the cluster's policy cannot be read now. The unused part of a claim is the claimed instances that the
    cluster has not launched.
    """
    own_clusters = {pool.cluster for pool in inputs.pools}
    for cluster, claim in sorted(live_claims.items()):
        if cluster not in own_clusters:
            launched_count = sum(usage.count for usage in inputs.usage if usage.pool == cluster and usage.running)
            idle_stock, _ = _draw(idle_stock, claim, claim.count - launched_count)
    return idle_stock


def _sort_by_priority(pools: Sequence[Pool], live_claims: Mapping[str, Claim]) -> list[Pool]:
    def sort_key(pool: Pool) -> tuple[bool, int, float, str]:
        live_claim = live_claims.get(pool.cluster)
        return (
            pool.dry_run,
            -pool.priority,
            live_claim.since if live_claim is not None and live_claim.count else float("inf"),
            pool.cluster,
        )

    return sorted(pools, key=sort_key)


def _base_size(pool: Pool) -> int:
    return 0 if pool.closed else pool.base


def _limited_size(pool: Pool, count: int) -> int:
    """The size nearest to `count` within the limits of the policy and of the group or the list of instances."""
    if pool.closed:
        return pool.least
    policy_size = max(pool.min, min(count, pool.max))
    largest_size = pool.most if pool.most is not None else policy_size
    return max(pool.least, min(policy_size, largest_size))


def _entitlements(ordered_pools: Sequence[Pool], idle_stock: Stock) -> tuple[dict[str, int], dict[str, int]]:
    entitled_sizes, spare_counts = {}, {}
    for pool in ordered_pools:
        _, spare_counts[pool.cluster] = _draw(idle_stock, pool, UNLIMITED)
        entitled_sizes[pool.cluster] = _limited_size(pool, pool.base + spare_counts[pool.cluster] - pool.headroom)
        headroom = 0 if pool.closed else pool.headroom
        idle_stock, _ = _draw(idle_stock, pool, max(entitled_sizes[pool.cluster] - _base_size(pool), 0) + headroom)
    return entitled_sizes, spare_counts


def _growth_limit(pool: Pool, ordered_pools: Sequence[Pool], idle_stock: Stock, taken_sizes: Mapping[str, int]) -> int:
    """The size to which the pool may grow if every other pool keeps the instances that the other pool holds or has
    claimed.
    """
    for other_pool in ordered_pools:
        if other_pool.cluster != pool.cluster:
            idle_stock, _ = _draw(idle_stock, other_pool, taken_sizes[other_pool.cluster] - _base_size(other_pool))
    _, available_count = _draw(idle_stock, pool, UNLIMITED)
    return _limited_size(pool, pool.base + available_count - pool.headroom)


def _decide_pool(
    pool: Pool, entitled: int, growth_limit: int, live_claim: Claim | None, at: float
) -> tuple[int, int, PoolReason, tuple[Proposal, ...]]:
    """The proposed size, the new target size, the reason of the decision, and the readings that are to be stored."""
    earlier_readings = live_claim.readings if live_claim is not None else ()
    if pool.frozen:
        return pool.current, pool.current, PoolReason.FROZEN, earlier_readings
    if pool.closed:  # at once, without waiting for a window, because no job is disturbed
        return pool.least, pool.least, PoolReason.CLOSED, ()
    proposal = entitled if entitled <= pool.current else max(pool.current, min(entitled, growth_limit))
    smallest_size = _limited_size(pool, 0)
    if pool.current < smallest_size:
        return proposal, smallest_size, PoolReason.RAISED_TO_MINIMUM, earlier_readings
    if proposal > pool.current and not pool.growable:
        return pool.current, pool.current, PoolReason.COOLING_DOWN, earlier_readings
    readings = _with_reading(pool, proposal, earlier_readings, at)
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
    """The readings of a pool, with the present reading added. If the last reading is less than `reading_seconds` old,
    the new proposal replaces the last proposal, but the last reading keeps its time. Several events within
    `reading_seconds` make only one reading, and do not delay the next reading.
    """
    if readings and at - readings[-1].at < pool.reading_seconds:
        return (*readings[:-1], Proposal(at=readings[-1].at, proposal=proposal))
    return (*readings, Proposal(at=at, proposal=proposal))[-pool.readings :]


def _agreed_size(pool: Pool, readings: tuple[Proposal, ...]) -> int:
    proposed_sizes = [reading.proposal for reading in readings[-pool.readings :]]
    return proposed_sizes[0] if len(proposed_sizes) == pool.readings and len(set(proposed_sizes)) == 1 else pool.current


def _new_claim(pool: Pool, count: int, old_claim: Claim | None, readings: tuple[Proposal, ...], at: float) -> Claim:
    continues_old_claim = old_claim is not None and old_claim.expires > at and old_claim.count > 0
    return Claim(
        count=count,
        instance_type=pool.instance_type,
        zone=pool.zone,
        platform=pool.platform,
        tenancy=pool.tenancy,
        capacity_reservations=pool.capacity_reservations,
        since=old_claim.since if old_claim is not None and continues_old_claim else at,
        expires=at + pool.lease_seconds,
        readings=readings,
        held=old_claim.held if old_claim is not None else (),
        releasing=old_claim.releasing if old_claim is not None else (),
    )
