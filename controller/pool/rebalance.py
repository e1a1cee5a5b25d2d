"""Give idle reserved instances to clusters, and take them back when somebody else needs the reservations.

1. Read the ledger of claims, the reservations, all instances and the groups. If a read fails, no pool is changed.
2. Decide on all pools at once (`core.pool.plan`, `core.pool.instances`).
3. Replace the claims that were read, record the decisions with their inputs, and act on the decisions.

The claims are stored first, so only one of two simultaneous runs acts. The next run completes the actions of a crashed
run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import Conflict, ControllerError, RetryLater
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.history.trail import PoolDecided
from dyntrain.controller.core.pool.inputs import Inputs
from dyntrain.controller.core.pool.instances import InstancePlan, plan_instances
from dyntrain.controller.core.pool.plan import Plan, PoolDecision, plan_pools
from dyntrain.controller.loops.registry import Registry
from dyntrain.controller.pool.act import ActionResults, apply_decision
from dyntrain.controller.pool.gather import PoolReading, inputs_of, read_pools
from dyntrain.controller.pool.ports import PoolPorts, StoredLedger

log = logging.getLogger("dyntrain.rebalance")

MIN_PAUSE_SECONDS = 10.0  # between two runs that events started; scheduled runs need no pause


@dataclass(frozen=True)
class RebalanceResult:
    """The result of one call of `rebalance`. If a read failed, `complete` is False and no pool was changed."""

    pools: int  # number of pools
    changed: tuple[str, ...] = ()  # clusters whose pool an action changed
    complete: bool = True  # whether all reads succeeded
    skipped: str = ""  # the reason why the run stopped early


def rebalance(
    pool_ports: PoolPorts, registry: Registry, elastic: ElasticTag, *, prompted: bool = False
) -> RebalanceResult:
    """Decide once on all pools, and carry out the decisions. `prompted` is true if an event started the run. A prompted
    run does nothing within MIN_PAUSE_SECONDS after another run. Raises RetryLater when an action failed and is worth a
    retry. Calling `rebalance` again is safe.
    """
    policies = pool_policies(registry)
    if not policies:
        return RebalanceResult(0, skipped="no cluster has a pool")
    stored_ledger = pool_ports.ledger.get()
    if prompted:
        # The run is registered before any read, so that of a burst of events only one run reads, even if reads fail.
        now = pool_ports.ports.clock()
        if now - stored_ledger.at < MIN_PAUSE_SECONDS:
            return RebalanceResult(len(policies), skipped="another run was a moment ago")
        try:
            pool_ports.ledger.put(replace(stored_ledger, at=now))
        except Conflict:
            return RebalanceResult(len(policies), skipped="another run is in progress")
        stored_ledger = replace(stored_ledger, at=now, version=stored_ledger.version + 1)
    pool_reading = read_pools(pool_ports, registry, policies, stored_ledger, elastic)
    inputs = inputs_of(pool_reading, policies, stored_ledger)
    plan = plan_pools(inputs)
    if inputs.problem:
        _record_decisions(pool_ports, plan, inputs)
        log.error("a read failed: the pools stay as they are", extra={"problem": inputs.problem})
        return RebalanceResult(len(policies), complete=False)
    instance_plans = _instance_plans(plan, pool_reading)
    try:
        pool_ports.ledger.put(_updated_ledger(plan, instance_plans, stored_ledger, inputs.at))
    except Conflict:
        return RebalanceResult(len(policies), skipped="another run has decided meanwhile")
    _record_decisions(pool_ports, plan, inputs)
    action_results = [
        apply_decision(
            pool_ports, policies[decision.pool.cluster], decision, instance_plans.get(decision.pool.cluster), elastic
        )
        for decision in plan.decisions
        if not decision.pool.dry_run
    ]
    return _result_of(plan, action_results)


def pool_policies(registry: Registry) -> dict[str, ClusterPolicy]:
    """The policies of the clusters that have a pool of reserved instances, by cluster name."""
    return {cluster: policy for cluster, policy in registry.all().items() if policy.pool is not None}


def _instance_plans(plan: Plan, reading: PoolReading) -> dict[str, InstancePlan]:
    return {
        decision.pool.cluster: plan_instances(reading.listed[decision.pool.cluster], decision.claim, decision.target)
        for decision in plan.decisions
        if decision.pool.cluster in reading.listed and not decision.pool.dry_run and not decision.pool.frozen
    }


def _updated_ledger(
    plan: Plan, instance_plans: Mapping[str, InstancePlan], stored_ledger: StoredLedger, written_at: float
) -> StoredLedger:
    claims_by_cluster = dict(plan.claims)
    for cluster, instance_plan in instance_plans.items():
        claims_by_cluster[cluster] = claims_by_cluster[cluster].model_copy(
            update={"held": instance_plan.held, "releasing": instance_plan.releasing}
        )
    return replace(stored_ledger, claims=claims_by_cluster, at=written_at)


def _record_decisions(pool_ports: PoolPorts, plan: Plan, inputs: Inputs) -> None:
    """Record the decisions on the pools in the audit trail, each with the inputs. The command `dyntrain pool plan
    --from-file` repeats a decision from recorded inputs.
    """
    inputs_json = inputs.model_dump_json(exclude_defaults=True)
    for decision in plan.decisions:
        trail_entry = _trail_entry(decision, inputs_json)
        try:
            pool_ports.ports.clusters.record(decision.pool.cluster, inputs.at, [trail_entry])
        except (
            ControllerError
        ) as error:  # a failed record must not stop the return of capacity, and the log contains the decision, too
            log.error(
                "the pool's decision was not recorded", extra={"cluster": decision.pool.cluster, "problem": str(error)}
            )
        log.info("rebalance", extra={"cluster": decision.pool.cluster, **_without_inputs(trail_entry)})


def _trail_entry(decision: PoolDecision, inputs: str) -> PoolDecided:
    return PoolDecided(
        why=str(decision.reason),
        detail=decision.sentence,
        dry_run="yes" if decision.pool.dry_run else "no",
        current=decision.pool.current,
        held=decision.held,
        spare=decision.spare,
        proposal=decision.proposal,
        target=decision.target,
        inputs=inputs,
    )


def _without_inputs(entry: PoolDecided) -> dict[str, str]:
    return {name: value for name, value in entry.fields().items() if name != "inputs"}


def _result_of(plan: Plan, results: list[ActionResults]) -> RebalanceResult:
    failures = [failure for result in results for failure in result.failures]
    if failures:
        raise RetryLater("; ".join(failures))
    return RebalanceResult(len(plan.decisions), tuple(result.cluster for result in results if result.changed))
