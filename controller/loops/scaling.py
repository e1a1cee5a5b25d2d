"""Sets the sizes of a cluster's groups after failed launches (`decisions/capacity.py` decides).

The steps for each group:
1. gather: the group's facts, and its size only if a decision may be due
2. decide: pure
3. apply: store the planned size, set it, store that it was set.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from dyntrain.controller.contract.errors import Conflict, GiveUp, RetryLater
from dyntrain.controller.core.decisions.actions import SetDesiredCapacity, TerminateInGroup
from dyntrain.controller.core.decisions.alarms import LAUNCH_FAILED
from dyntrain.controller.core.decisions.capacity import CapacityPlan, needs_size, plan_capacity
from dyntrain.controller.core.planning import Decision
from dyntrain.controller.core.records.groups import GroupFacts
from dyntrain.controller.core.views.view import Rules
from dyntrain.controller.loops.execute import perform
from dyntrain.controller.loops.ports import Ports, StoredGroup

log = logging.getLogger("dyntrain.scaling")


def settle_capacity(
    ports: Ports, rules: Rules, decision: Decision, woken_groups: frozenset[str], *, all_groups: bool
) -> tuple[SetDesiredCapacity, ...]:
    """Change the desired capacities of the Auto Scaling groups in `woken_groups` where failed launches require a
    change. With `all_groups`, all groups of the cluster are checked. Returns the actions that set a desired capacity.

    A group whose size was just lowered by an action of `decision` is not changed before the next tick (periodic check).
    Raises RetryLater. If another run writes the group's table item first, this run leaves the group to the other run.
    """
    lowered_groups = {
        action.group for action in decision.actions if isinstance(action, TerminateInGroup) and action.decrement
    }
    done_actions: list[SetDesiredCapacity] = []
    for group in rules.groups:
        if group in lowered_groups or (not all_groups and group not in woken_groups):
            continue
        stored_group = ports.group_records.get(group)
        now = ports.clock()
        if stored_group is None or not needs_size(stored_group.facts, rules.policy, now):
            continue
        group_size = ports.groups.sizes([group]).get(group)
        if group_size is None:
            continue
        plan = plan_capacity(
            stored_group.facts, group_size, rules.policy, now, _lowered_count(decision, stored_group.facts)
        )
        if plan is not None and not (_groups_must_not_grow(decision) and (plan.desired or 0) > group_size.desired):
            done_actions += _apply(ports, rules, stored_group, plan)
    return tuple(done_actions)


def _groups_must_not_grow(decision: Decision) -> bool:
    """Whether the cluster's groups must not grow, because the job has ended or the cluster is closed. An instance that
    is launched after the end of the job or into a closed cluster would be ended at once.
    """
    return decision.job.over or decision.ending is not None


def _lowered_count(decision: Decision, group: GroupFacts) -> int:
    """The number of members that the controller has terminated with a reduction of the group's size, since the
    controller last responded to a failed launch.
    """
    size_set_at = group.capacity.at if group.capacity is not None else 0.0
    termination_acks = (node.view.facts.acks.terminate for node in decision.nodes)
    return sum(
        termination_ack is not None
        and termination_ack.lowered
        and termination_ack.group == group.group
        and termination_ack.at > size_set_at
        for termination_ack in termination_acks
    )


def _apply(ports: Ports, rules: Rules, stored: StoredGroup, plan: CapacityPlan) -> list[SetDesiredCapacity]:
    group, cluster = stored.facts.group, rules.policy.cluster
    try:
        planned_group = replace(stored, facts=stored.facts.model_copy(update={"capacity": plan.memory}))
        ports.group_records.put(planned_group, wake=False)
        if plan.desired is None:
            return []
        failure_message = stored.facts.failed.message if stored.facts.failed is not None else ""
        action = SetDesiredCapacity(group, plan.desired, plan.why, failure_message)
        results = perform(ports, cluster, [action])
        if results.failures:
            raise RetryLater("; ".join(results.failures))
        if results.refused:
            raise GiveUp(results.refused[0].detail)
        done_facts = stored.facts.model_copy(update={"capacity": plan.memory.model_copy(update={"done": True})})
        ports.group_records.put(StoredGroup(done_facts, stored.version + 1), wake=False)
    except Conflict:
        log.info("another pass handles the group", extra={"cluster": cluster, "group": group})
        return []
    ports.clusters.record(cluster, ports.clock(), results.trail)
    if plan.why == "LOWERED":
        ports.metrics.count(LAUNCH_FAILED, cluster)
    log.warning("desired capacity set", extra={"cluster": cluster, **results.trail[0].fields()})
    return [action]
