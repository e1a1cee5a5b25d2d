"""Hands idle reserved instances to clusters, and gives them back when somebody else needs them.

1. gather: the ledger of claims, then reservations, all instances, the groups; whatever fails makes the reading partial
2. decide: all pools at once (`reserved`, `reserved_instances`)
3. apply: store the claims over the version that was read, then record the decision with its inputs, then act on it

The claims are stored first: of two runs at once only one gets to act, and what a crash leaves undone is done by the next run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from controller.contract import ClusterPolicy
from controller.errors import Conflict, ControllerError, RetryLater
from controller.pool_reading import PoolReading, inputs_of, read_pools
from controller.pools import Acted, act
from controller.registry import Registry
from controller.reserved import Plan, PoolDecision, plan_pools
from controller.reserved_inputs import Inputs
from controller.reserved_instances import InstancePlan, plan_instances
from controller.reserved_ports import PoolPorts, StoredLedger

log = logging.getLogger("dyntrain.rebalance")

PAUSE_SECONDS = 10.0  # between two runs that events asked for; the schedule's run comes anyway


@dataclass(frozen=True)
class Rebalanced:
    """`complete` False: a read failed, and nothing was changed. `skipped`: why nothing was looked at."""

    pools: int
    changed: tuple[str, ...] = ()
    complete: bool = True
    skipped: str = ""


def rebalance(world: PoolPorts, registry: Registry, suffix: str, *, prompted: bool = False) -> Rebalanced:
    """`prompted`: by an event, of which there may be very many. Raises RetryLater when an action failed; repeating it is safe."""
    policies = pooled(registry)
    if not policies:
        return Rebalanced(0, skipped="no cluster has a pool")
    stored = world.ledger.get()
    if prompted and world.ports.clock() - stored.at < PAUSE_SECONDS:
        return Rebalanced(len(policies), skipped="looked at a moment ago")
    reading = read_pools(world, registry, policies, stored, suffix)
    inputs = inputs_of(reading, policies, stored)
    plan = plan_pools(inputs)
    if inputs.problem:
        _record(world, plan, inputs)
        log.error("a read failed: the last good view stands", extra={"problem": inputs.problem})
        return Rebalanced(len(policies), complete=False)
    listed = _instance_plans(plan, reading)
    try:
        world.ledger.put(_ledger(plan, listed, stored, inputs.at))
    except Conflict:
        return Rebalanced(len(policies), skipped="another run decided meanwhile")
    _record(world, plan, inputs)
    acted = [act(world, policies[one.pool.cluster], one, listed.get(one.pool.cluster), suffix) for one in plan.decisions if not one.pool.dry_run]
    return _finished(plan, acted)


def pooled(registry: Registry) -> dict[str, ClusterPolicy]:
    """The clusters that have a pool."""
    return {cluster: policy for cluster, policy in registry.all().items() if policy.pool is not None}


def _instance_plans(plan: Plan, reading: PoolReading) -> dict[str, InstancePlan]:
    return {
        one.pool.cluster: plan_instances(reading.listed[one.pool.cluster], one.claim, one.target)
        for one in plan.decisions
        if one.pool.cluster in reading.listed and not one.pool.dry_run and not one.pool.frozen
    }


def _ledger(plan: Plan, listed: Mapping[str, InstancePlan], stored: StoredLedger, at: float) -> StoredLedger:
    claims = dict(plan.claims)
    for cluster, chosen in listed.items():
        claims[cluster] = claims[cluster].model_copy(update={"held": chosen.held, "releasing": chosen.releasing})
    return replace(stored, claims=claims, at=at)


def _record(world: PoolPorts, plan: Plan, inputs: Inputs) -> None:
    """The inputs are what `dyntrain pool plan --from-file` takes, so that any decision can be made again by hand."""
    text = inputs.model_dump_json(exclude_defaults=True)
    for one in plan.decisions:
        entry = {**_told(one), "inputs": text}
        try:
            world.ports.clusters.record(one.pool.cluster, inputs.at, [entry])
        except ControllerError as error:  # the audit must not keep capacity from being given back; the log has the decision too
            log.error("not recorded", extra={"cluster": one.pool.cluster, "problem": str(error)})
        log.info("rebalance", extra={"cluster": one.pool.cluster, **_told(one)})


def _told(one: PoolDecision) -> dict[str, str]:
    numbers = {"current": one.pool.current, "held": one.held, "spare": one.spare, "proposal": one.proposal, "target": one.target}
    detail = one.pool.frozen or one.reason.sentence
    dry = "yes" if one.pool.dry_run else "no"
    return {"kind": "Rebalance", "why": str(one.reason), "detail": detail, "dry_run": dry, **{name: str(number) for name, number in numbers.items()}}


def _finished(plan: Plan, acted: list[Acted]) -> Rebalanced:
    failures = [failure for one in acted for failure in one.failures]
    if failures:
        raise RetryLater("; ".join(failures))
    return Rebalanced(len(plan.decisions), tuple(one.cluster for one in acted if one.changed))
