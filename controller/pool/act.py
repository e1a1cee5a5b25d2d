"""Carry out in AWS a decision on a cluster's pool of reserved instances. An action sets an Auto Scaling group's desired
capacity, or starts, stops, tags or untags instances. No instance is terminated.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import ControllerError
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.decisions.actions import (
    Action,
    SetDesiredCapacity,
    StartInstances,
    StopInstances,
    TagElastic,
    UntagElastic,
)
from dyntrain.controller.core.pool.instances import InstancePlan
from dyntrain.controller.core.pool.plan import PoolDecision
from dyntrain.controller.loops.execute import perform
from dyntrain.controller.pool.gather import group_of
from dyntrain.controller.pool.ports import PoolPorts

log = logging.getLogger("dyntrain.pools")


@dataclass(frozen=True)
class ActionResults:
    """The results of the actions that one run took for one cluster's pool. Actions that AWS refused are recorded in the
    log and the audit trail. The next run of the pool's loop tries refused actions again.
    """

    cluster: str
    changed: bool  # whether any action took effect
    failures: tuple[str, ...]  # messages of failures that are worth a retry


def apply_decision(
    pool_ports: PoolPorts,
    policy: ClusterPolicy,
    decision: PoolDecision,
    instance_plan: InstancePlan | None,
    elastic: ElasticTag,
) -> ActionResults:
    """Carry out the decision on the cluster's pool. Errors of AWS and of the DynamoDB table are not raised."""
    ports, cluster = pool_ports.ports, policy.cluster
    results = perform(ports, cluster, _pool_actions(policy, decision, instance_plan, elastic), why="POOL")
    trail_entries = [*results.trail, *results.refused]
    if trail_entries:
        try:
            ports.clusters.record(cluster, ports.clock(), trail_entries)
        except ControllerError as error:
            log.error("the pool's actions were not recorded", extra={"cluster": cluster, "problem": str(error)})
    return ActionResults(cluster, bool(results.done), tuple(f"{cluster}: {failure}" for failure in results.failures))


def _pool_actions(
    policy: ClusterPolicy, decision: PoolDecision, instance_plan: InstancePlan | None, elastic: ElasticTag
) -> list[Action]:
    """The actions that carry out the pool's decision, in the order of execution. A stopped machine with the elastic tag
    would look broken, so a machine loses the tag before the stop and gets the tag after the start.
    """
    actions: list[Action] = []
    group = group_of(policy)
    if group is not None and decision.acts:
        actions.append(SetDesiredCapacity(group, decision.target, f"POOL_{decision.reason}"))
    if instance_plan is not None:
        elastic_tag_key = elastic.of(policy.cluster)
        actions += [UntagElastic(instance_plan.untag, elastic_tag_key)] if instance_plan.untag else []
        actions += [StopInstances(instance_plan.stop)] if instance_plan.stop else []
        actions += [StartInstances(instance_plan.start)] if instance_plan.start else []
        actions += [TagElastic(instance_plan.tag, elastic_tag_key)] if instance_plan.tag else []
    return actions
