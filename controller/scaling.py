"""Answers failed launches of a cluster's groups (the decisions are in `capacity`).

1. gather: the group's facts; its size, only when something may have to be decided
2. decide: pure
3. apply: remember what is about to be set, set it, remember that it was set
"""

from __future__ import annotations

import logging
from dataclasses import replace

from controller.actions import SetDesiredCapacity
from controller.alarms import LAUNCH_FAILED
from controller.capacity import CapacityPlan, due, plan_capacity
from controller.errors import Conflict
from controller.ports import Ports, StoredGroup
from controller.view import Rules

log = logging.getLogger("dyntrain.scaling")


def settle_capacity(ports: Ports, rules: Rules, concerned: frozenset[str], *, every: bool) -> tuple[SetDesiredCapacity, ...]:
    """The groups in `concerned`, or `every` group of the cluster. Returns what was set. Raises RetryLater; a lost race is left to its winner."""
    done: list[SetDesiredCapacity] = []
    for group in rules.groups:
        if not every and group not in concerned:
            continue
        stored = ports.group_records.get(group)
        now = ports.clock()
        if stored is None or not due(stored.facts, rules.policy, now):
            continue
        size = ports.groups.sizes([group]).get(group)
        if size is None:
            continue
        plan = plan_capacity(stored.facts, size, rules.policy, now)
        if plan is not None:
            done += _apply(ports, rules, stored, plan)
    return tuple(done)


def _apply(ports: Ports, rules: Rules, stored: StoredGroup, plan: CapacityPlan) -> list[SetDesiredCapacity]:
    group, cluster = stored.facts.group, rules.policy.cluster
    try:
        before = replace(stored, facts=stored.facts.model_copy(update={"capacity": plan.memory}))
        ports.group_records.put(before, wake=False)
        if plan.desired is None:
            return []
        ports.groups.set_desired(group, plan.desired)
        after = stored.facts.model_copy(update={"capacity": plan.memory.model_copy(update={"done": True})})
        ports.group_records.put(StoredGroup(after, stored.version + 1), wake=False)
    except Conflict:
        log.info("another pass answers for the group", extra={"cluster": cluster, "group": group})
        return []
    reason = stored.facts.failed.message if stored.facts.failed is not None else ""
    entry = {"kind": "SetDesiredCapacity", "group": group, "value": str(plan.desired), "why": plan.why, "detail": reason}
    ports.clusters.record(cluster, ports.clock(), [entry])
    if plan.why == "LOWERED":
        ports.metrics.count(LAUNCH_FAILED, cluster)
    log.warning("desired capacity set", extra={"cluster": cluster, **entry})
    return [SetDesiredCapacity(group, plan.desired, plan.why)]
