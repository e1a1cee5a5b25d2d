"""Suspends the launches of elastic groups whose nodes all fail in the same way, and resumes the launches later (see
`decisions/holding.py`).

The steps for each group:
1. gather: the group's facts, and its size only if a decision may be due
2. decide: pure
3. apply: store the plan, carry it out, store that it is done.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from dyntrain.controller.contract.errors import Conflict, RetryLater
from dyntrain.controller.core.decisions.actions import HoldLaunches, ReleaseLaunches
from dyntrain.controller.core.decisions.alarms import LAUNCHES_HELD
from dyntrain.controller.core.decisions.holding import HoldPlan, plan_hold, streak
from dyntrain.controller.core.history.trail import AlarmRaised
from dyntrain.controller.core.planning import Decision
from dyntrain.controller.core.records.groups import GroupFacts
from dyntrain.controller.core.views.view import Rules
from dyntrain.controller.loops.execute import perform
from dyntrain.controller.loops.ports import Ports, StoredGroup

log = logging.getLogger("dyntrain.holding")


def settle_holds(ports: Ports, rules: Rules, decision: Decision, *, all_groups: bool) -> None:
    """Suspend or resume the launches of Auto Scaling groups whose nodes have just failed in the same way. With
    `all_groups`, all groups of the cluster are checked.

    This function must run before failed launches are abandoned, because a group launches the next machine as soon as a
    launch is abandoned. Raises RetryLater. If another run writes the group's table item first, this run leaves the
    group to the other run.
    """
    for group in rules.groups:
        failure_streak = streak(decision.nodes, group)
        if not all_groups and (failure_streak is None or failure_streak.times < rules.policy.alike_failures):
            continue
        stored_group = ports.group_records.get(group) or StoredGroup(GroupFacts(group=group), 0)
        launches_held = stored_group.facts.hold is not None and stored_group.facts.hold.held
        if not launches_held and plan_hold(stored_group.facts, decision.nodes, rules.policy, ports.clock()) is None:
            continue
        group_size = ports.groups.sizes([group]).get(group)
        if group_size is None or group_size.base:
            continue
        plan = plan_hold(stored_group.facts, decision.nodes, rules.policy, ports.clock(), group_size.launches)
        if plan is not None:
            _apply(ports, rules, stored_group, plan)
        elif launches_held:
            ports.metrics.count(LAUNCHES_HELD, rules.policy.cluster)


def _apply(ports: Ports, rules: Rules, stored: StoredGroup, plan: HoldPlan) -> None:
    group, cluster = stored.facts.group, rules.policy.cluster
    try:
        planned_group = replace(stored, facts=stored.facts.model_copy(update={"hold": plan.memory}))
        ports.group_records.put(planned_group, wake=False)
        if plan.operation is None:
            return
        action = HoldLaunches(group, plan.why) if plan.operation == "hold" else ReleaseLaunches(group, plan.why)
        results = perform(ports, cluster, [action])
        if results.failures:
            raise RetryLater("; ".join(results.failures))
        if results.refused:
            ports.clusters.record(cluster, ports.clock(), results.refused)
            return
        done_facts = planned_group.facts.model_copy(update={"hold": plan.memory.model_copy(update={"done": True})})
        ports.group_records.put(StoredGroup(done_facts, stored.version + 1), wake=False)
    except Conflict:
        log.info("another pass handles the group", extra={"cluster": cluster, "group": group})
        return
    trail_entries = [*results.trail]
    if plan.operation == "hold":
        ports.metrics.count(LAUNCHES_HELD, cluster)
        trail_entries.append(
            AlarmRaised(kind=LAUNCHES_HELD, detail=f"{group}: {plan.memory.times} alike: {plan.memory.reason}")
        )
    ports.clusters.record(cluster, ports.clock(), trail_entries)
    log.error(
        f"launches of a group are {'suspended' if plan.operation == 'hold' else 'resumed'}",
        extra={"cluster": cluster, "group": group, "why": plan.why, "problem": plan.memory.reason},
    )
