"""Derive a decision from a cluster's facts: the cluster's next members, the status of each node, and actions on AWS.

A fact is an observation about a node. A view is the node's present state, derived from its facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from dyntrain.controller.contract.messages import OWNER_TAG, Status
from dyntrain.controller.core.decisions.actions import (
    Action,
    CompleteLifecycle,
    HeartbeatLifecycle,
    Protect,
    PublishTarget,
    SetStatusTag,
    StampOwner,
    StopBase,
    SuspendReplacement,
    Terminate,
    TerminateInGroup,
    instances,
)
from dyntrain.controller.core.decisions.alarms import Alarm, alarms_of
from dyntrain.controller.core.decisions.brake import ENDINGS_HELD_TEXT, ids_to_hold, without_terminations
from dyntrain.controller.core.decisions.closing import (
    Closing,
    closing_actions,
    plan_closing,
    recently_refused,
    resume_actions,
)
from dyntrain.controller.core.decisions.leaving import window_waits
from dyntrain.controller.core.decisions.orphans import orphaned_since
from dyntrain.controller.core.decisions.replacement import planned_replacements, with_replacements
from dyntrain.controller.core.decisions.status import NodeStatus, Standing, derive_status
from dyntrain.controller.core.decisions.succession import Nomination, nominate, unchanged_nomination, with_nomination
from dyntrain.controller.core.history.metering import new_entries
from dyntrain.controller.core.history.trail import Metered
from dyntrain.controller.core.records.acks import NO_HEARTBEAT
from dyntrain.controller.core.records.facts import NodeFacts
from dyntrain.controller.core.records.job import Job, JobFacts, job_at
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.core.views.target import Membership, plan_target, with_end_time
from dyntrain.controller.core.views.view import Rules, View, view

_ACTIONS_ON_SEVERAL_INSTANCES = (StampOwner, SetStatusTag, Protect, Terminate, SuspendReplacement, StopBase)
TAGGED_STATUSES: tuple[Status, ...] = ("PREPARE_FAILED", "ADD_QUEUED", "ADDED", "REMOVAL_QUEUED", "REMOVED")


@dataclass(frozen=True)
class StatusChange:
    """A change of a node's status or reason since the last announcement."""

    instance: str  # instance id
    before: str  # the last announced status and reason; "" if none was announced
    standing: Standing  # the new status and reason


@dataclass(frozen=True)
class Decision:
    membership: Membership  # the next target
    job: Job  # the job as reported
    nodes: tuple[NodeStatus, ...]  # the state and status of each node
    actions: tuple[Action, ...]  # on AWS, in their order
    changes: tuple[StatusChange, ...]  # of statuses, to be announced
    alarms: tuple[Alarm, ...] = ()  # to be raised now
    nomination: Nomination | None = None  # only a new nomination
    metered: tuple[Metered, ...] = ()  # new entries of the audit trail for the bill
    ending: Closing | None = None  # set while the cluster is being closed, and afterwards

    @property
    def next_change(self) -> float | None:
        change_times = [node.standing.next_change for node in self.nodes if node.standing.next_change is not None]
        return min(change_times, default=None)


def decide(
    facts: Iterable[NodeFacts], old: Membership, job_facts: JobFacts | None, rules: Rules, now: float, published: int
) -> Decision:
    """Decide on the members, the statuses and the actions of one cluster. `published` is the target revision that is
    known to be in the SSM parameter. If the new target has another revision than `published`, the decision contains the
    action that publishes the new target.
    """
    job = job_at(job_facts, rules.policy.lease_seconds, now, old.finished)
    views = sorted((view(node, rules, now) for node in facts), key=lambda node: node.instance)
    replacements = planned_replacements(views, old, job_facts, rules)
    views = with_replacements(views, replacements)
    pending_waits = window_waits(old, views, job, rules, now)
    target_plan = plan_target(old, views, rules, job.over, replacements, pending_waits)
    closing_plan = plan_closing(views, old, job, job_facts, rules, now)
    nomination = nominate(old, views, job_facts, rules, now) if closing_plan is None else unchanged_nomination(old)
    membership = with_nomination(old, with_end_time(old, target_plan.membership, now), nomination)
    nodes = tuple(
        NodeStatus(
            node,
            derive_status(
                node,
                membership,
                job,
                rules,
                now,
                target_plan.reasons.get(node.instance),
                pending_waits.get(node.instance),
                closing_plan,
            ),
        )
        for node in views
    )
    actions: tuple[Action, ...] = plan_actions(nodes, rules, now, closing_plan)
    if held_instances := ids_to_hold(nodes, actions, rules, now):
        actions = tuple(without_terminations(actions, held_instances))
        nodes = tuple(
            replace(node, standing=replace(node.standing, detail=ENDINGS_HELD_TEXT))
            if node.view.instance in held_instances
            else node
            for node in nodes
        )
    if membership.revision > 0 and membership.revision != published:
        actions = (PublishTarget(membership), *actions)
    new_nomination = nomination if nomination.term != old.term else None
    alarms = alarms_of(nodes, rules, now, held_instances)
    changes, bill_entries = tuple(_status_changes(nodes)), new_entries(views, rules, now)
    return Decision(membership, job, nodes, actions, changes, alarms, new_nomination, bill_entries, closing_plan)


def plan_actions(
    nodes: Iterable[NodeStatus], rules: Rules, now: float, ending: Closing | None = None
) -> tuple[Action, ...]:
    """The actions on the nodes, in the order of execution. For example, an instance gets the status tag REMOVED before
    the instance is terminated.
    """
    nodes = list(nodes)
    living_nodes = [node for node in nodes if not node.view.terminated]
    return (
        *_ownership_tag_actions(living_nodes, rules),
        *_status_tag_actions(living_nodes),
        *_final_tag_actions(node.view for node in nodes if node.view.terminated),
        *_protect_actions(living_nodes, rules),
        *(action for node in living_nodes for action in _lifecycle_actions(node, rules, now)),
        *_terminate_actions(living_nodes, rules, now),
        *(closing_actions(ending, [node.view for node in living_nodes], rules, now) if ending is not None else ()),
        *resume_actions(ending, [node.view for node in nodes], rules),
    )


def without_instances(decision: Decision, excluded: AbstractSet[str]) -> Decision:
    """The decision without the status changes and the actions of the `excluded` instances. The membership and the
    publication of the target stay in the decision.
    """
    if not excluded:
        return decision
    changes = tuple(change for change in decision.changes if change.instance not in excluded)
    bill_entries = tuple(entry for entry in decision.metered if entry.instance not in excluded)
    return replace(
        decision, actions=tuple(_remaining_actions(decision.actions, excluded)), changes=changes, metered=bill_entries
    )


def announced_instances(decision: Decision) -> set[str]:
    """The instances whose status changes or whose status tag is written by the decision."""
    tagged_instances = (action.instances for action in decision.actions if isinstance(action, SetStatusTag))
    return {change.instance for change in decision.changes}.union(*tagged_instances)


def _remaining_actions(actions: Iterable[Action], excluded: AbstractSet[str]) -> Iterator[Action]:
    for action in actions:
        action_instances = instances(action)
        remaining_instances = tuple(instance_id for instance_id in action_instances if instance_id not in excluded)
        if remaining_instances == action_instances:
            yield action
        elif remaining_instances and isinstance(action, _ACTIONS_ON_SEVERAL_INSTANCES):
            yield replace(action, instances=remaining_instances)


def _status_changes(nodes: Iterable[NodeStatus]) -> Iterator[StatusChange]:
    for node in nodes:
        status_ack = node.view.facts.acks.status
        old_line = status_ack.value if status_ack is not None else ""
        if old_line != node.standing.line:
            yield StatusChange(node.view.instance, old_line, node.standing)


def _ownership_tag_actions(nodes: list[NodeStatus], rules: Rules) -> Iterator[Action]:
    """The action that sets the ownership tag on new members of the cluster's Auto Scaling groups. Instances with the
    ownership tag of another cluster are not changed.
    """
    instances_to_tag = tuple(node.view.instance for node in nodes if _needs_ownership_tag(node.view, rules))
    if instances_to_tag:
        yield StampOwner(instances_to_tag, rules.policy.cluster)


def _needs_ownership_tag(node: View, rules: Rules) -> bool:
    in_group = node.group in rules.groups and node.phase in ("warm", "launching", "in_service") and not node.unseen
    return in_group and not node.owned and node.tags is not None and OWNER_TAG not in node.tags


def _status_tag_actions(nodes: list[NodeStatus]) -> Iterator[Action]:
    instances_by_status: Mapping[Status, list[str]] = {status: [] for status in TAGGED_STATUSES}
    for node in nodes:
        standing = node.standing
        never_asked = standing.reason is Reason.NEVER_ASKED
        untagged_on_purpose = node.view.may_be_base or never_asked or node.view.unseen > 0
        if (
            standing.status in instances_by_status
            and not untagged_on_purpose
            and node.view.status_tag != standing.status
        ):
            instances_by_status[standing.status].append(node.view.instance)
    for status, tagged_instances in instances_by_status.items():
        if tagged_instances:
            yield SetStatusTag(tuple(tagged_instances), status)


def _final_tag_actions(terminated_nodes: Iterable[View]) -> Iterator[Action]:
    """The action that sets the status tag REMOVED on terminated instances. Without the new status tag, the old tag of
    an instance that EC2 took would show for ever that the instance is in the job.
    """
    instances_to_retag = tuple(
        node.instance for node in terminated_nodes if node.status_tag in ("ADD_QUEUED", "ADDED", "REMOVAL_QUEUED")
    )
    if instances_to_retag:
        yield SetStatusTag(instances_to_retag, "REMOVED", gone=True)


def _protect_actions(nodes: list[NodeStatus], rules: Rules) -> Iterator[Action]:
    for group in rules.groups:
        base_nodes = [
            node.view
            for node in nodes
            if node.view.base and node.view.group == group and node.view.phase == "in_service"
        ]
        unprotected_nodes = tuple(node.instance for node in base_nodes if not _is_protected(node, group, rules))
        if unprotected_nodes:
            yield Protect(unprotected_nodes, group)


def _is_protected(node: View, group: str, rules: Rules) -> bool:
    """Whether the group member is protected from scale-in. The controller trusts its own record of the protection until
    a describe call begins later than the settling margin after the recorded time. After a later describe call, the
    controller trusts the result of the call.
    """
    protection_ack, group_read = node.facts.acks.protections.get(group), node.facts.group_read
    if (
        group_read is not None
        and group_read.protected is not None
        and (protection_ack is None or group_read.started > protection_ack.at + rules.policy.settling_seconds)
    ):
        return group_read.protected
    return protection_ack is not None


def _lifecycle_actions(node: NodeStatus, rules: Rules, now: float) -> Iterator[Action]:
    status, node_view = node.standing.status, node.view
    if node_view.group is not None and node_view.group not in rules.groups:
        return
    if node_view.phase in ("warm", "launching"):
        for key, hook in node_view.waiting_hooks("launch"):
            if (
                node_view.preparation is not None
                and node_view.preparation.outcome == "prepared"
                and status != "REMOVED"
            ):
                yield CompleteLifecycle(node_view.instance, key, hook.group, hook.hook, hook.token, "CONTINUE")
            elif node_view.base and (status == "PREPARE_FAILED" or node.standing.reason is Reason.NEVER_HEARD):
                # the base node stays, so that people can log in and repair it
                yield CompleteLifecycle(node_view.instance, key, hook.group, hook.hook, hook.token, "CONTINUE")
            elif status == "PREPARE_FAILED" and node_view.requested and not node_view.elastic_assumed:
                yield CompleteLifecycle(node_view.instance, key, hook.group, hook.hook, hook.token, "ABANDON")
            elif status == "WAITING" and node_view.alive and _heartbeat_due(node_view, key, hook.at, rules, now):
                yield HeartbeatLifecycle(node_view.instance, key, hook.group, hook.hook, hook.token)
    if node_view.phase == "terminating":
        for key, hook in node_view.waiting_hooks("terminate"):
            if status in ("REMOVED", "PREPARE_FAILED") or now - hook.at >= rules.policy.hook_cap_seconds:
                yield CompleteLifecycle(node_view.instance, key, hook.group, hook.hook, hook.token, "CONTINUE")
            elif status == "REMOVAL_QUEUED" and _heartbeat_due(node_view, key, hook.at, rules, now):
                yield HeartbeatLifecycle(node_view.instance, key, hook.group, hook.hook, hook.token)


def _heartbeat_due(node: View, key: str, asked_at: float, rules: Rules, now: float) -> bool:
    last_heartbeat, hook_answer = node.facts.acks.heartbeats.get(key), node.facts.acks.answers.get(key)
    if hook_answer is not None and hook_answer.result == NO_HEARTBEAT:
        return False
    return (
        now - max(asked_at, last_heartbeat.at if last_heartbeat is not None else 0.0) >= rules.policy.heartbeat_seconds
    )


def _terminate_actions(nodes: list[NodeStatus], rules: Rules, now: float) -> Iterator[Action]:
    ungrouped_instances = []
    for node in nodes:
        if not _must_terminate(node, rules, now):
            continue
        if node.view.group is None:
            ungrouped_instances.append(node.view.instance)
        elif node.view.group in rules.groups and node.view.phase not in ("terminating", "left"):
            yield TerminateInGroup(node.view.instance, node.view.group, _removal_requested(node))
    if ungrouped_instances:
        yield Terminate(tuple(ungrouped_instances))


def _removal_requested(node: NodeStatus) -> bool:
    """Whether users want fewer nodes, so that the group's desired capacity is lowered when the node is terminated. A
    node that failed or that AWS takes is replaced by its Auto Scaling group, whose capacity stays. If each Spot
    interruption lowered the desired capacity, a group of Spot instances would only shrink.
    """
    return node.standing.reason in (Reason.JOB_OVER, Reason.IDLE, Reason.OVERTIME) or not node.view.elastic


def _must_terminate(node: NodeStatus, rules: Rules, now: float) -> bool:
    """Whether the controller has to terminate the node now. The controller terminates an instance only if the cluster
    owns the instance, and if the instance was asked to join or took part in the job.

    The ownership tag alone is no reason to terminate an instance, because users can set this tag. The membership in an
    Auto Scaling group alone is no reason to terminate an instance. A stopped machine that carries the elastic tag is
    kept, because users may start the machine again. A node whose tags are not all known yet is kept, because it may be
    a base node.
    """
    node_view = node.view
    if (
        node_view.may_be_base
        or node_view.terminate_issued
        or node_view.tags is None
        or node_view.state == "shutting-down"
        or node_view.unseen
    ):
        return False
    ends_as_orphan = rules.policy.terminate_orphans and orphaned_since(node.standing, node_view, rules, now) is not None
    if node.standing.status != "REMOVED" and not ends_as_orphan:
        return False
    if node.standing.reason is Reason.STOPPED and node_view.elastic:
        return False
    if node.standing.reason is Reason.ABANDONED and node_view.group is not None:
        return False
    if recently_refused(node_view, now):
        return False
    return node_view.requested and node_view.proven and (node_view.owned or _needs_ownership_tag(node_view, rules))
