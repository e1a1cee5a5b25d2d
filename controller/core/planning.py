"""Turn facts into a decision: the next membership, the status of each node, and actions on AWS.

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
from dyntrain.controller.core.decisions.brake import ENDINGS_HELD_TEXT, held_endings, without_endings
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
from dyntrain.controller.core.decisions.status import NodeStatus, Standing, derive
from dyntrain.controller.core.decisions.succession import Nomination, nominate, unchanged_nomination, with_nomination
from dyntrain.controller.core.history.metering import new_entries
from dyntrain.controller.core.history.trail import Metered
from dyntrain.controller.core.records.acks import NO_HEARTBEAT
from dyntrain.controller.core.records.facts import NodeFacts
from dyntrain.controller.core.records.job import Job, JobFacts, job_at
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.core.views.target import Membership, plan_target, with_end_time
from dyntrain.controller.core.views.view import Rules, View, view

_DIVISIBLE = (StampOwner, SetStatusTag, Protect, Terminate, SuspendReplacement, StopBase)
TAGGED_STATUSES: tuple[Status, ...] = ("PREPARE_FAILED", "ADD_QUEUED", "ADDED", "REMOVAL_QUEUED", "REMOVED")


@dataclass(frozen=True)
class Change:
    """A change of a node's status or reason since the last announcement."""

    instance: str
    before: str
    standing: Standing


@dataclass(frozen=True)
class Decision:
    membership: Membership
    job: Job
    nodes: tuple[NodeStatus, ...]
    actions: tuple[Action, ...]
    changes: tuple[Change, ...]
    alarms: tuple[Alarm, ...] = ()
    nomination: Nomination | None = None  # only a new nomination
    metered: tuple[Metered, ...] = ()
    ending: Closing | None = None  # set while the cluster is being closed, and afterwards

    @property
    def next_change(self) -> float | None:
        times = [node.standing.next_change for node in self.nodes if node.standing.next_change is not None]
        return min(times, default=None)


def decide(
    facts: Iterable[NodeFacts], old: Membership, job_facts: JobFacts | None, rules: Rules, now: float, published: int
) -> Decision:
    """Decide on the cluster. `published` is the last known revision in the parameter store. If the new revision
    differs, the target is published again.
    """
    job = job_at(job_facts, rules.policy.lease_seconds, now, old.finished)
    views = sorted((view(node, rules, now) for node in facts), key=lambda node: node.instance)
    replacing = planned_replacements(views, old, job_facts, rules)
    views = with_replacements(views, replacing)
    pending_waits = window_waits(old, views, job, rules, now)
    plan = plan_target(old, views, rules, job.over, replacing, pending_waits)
    ending = plan_closing(views, old, job, job_facts, rules, now)
    nomination = nominate(old, views, job_facts, rules, now) if ending is None else unchanged_nomination(old)
    membership = with_nomination(old, with_end_time(old, plan.membership, now), nomination)
    nodes = tuple(
        NodeStatus(
            node,
            derive(
                node,
                membership,
                job,
                rules,
                now,
                plan.reasons.get(node.instance),
                pending_waits.get(node.instance),
                ending,
            ),
        )
        for node in views
    )
    actions: tuple[Action, ...] = plan_actions(nodes, rules, now, ending)
    if held_back := held_endings(nodes, actions, rules, now):
        actions = tuple(without_endings(actions, held_back))
        nodes = tuple(
            replace(node, standing=replace(node.standing, detail=ENDINGS_HELD_TEXT))
            if node.view.instance in held_back
            else node
            for node in nodes
        )
    if membership.revision > 0 and membership.revision != published:
        actions = (PublishTarget(membership), *actions)
    new_nomination = nomination if nomination.term != old.term else None
    alarms = alarms_of(nodes, rules, now, held_back)
    changes, bill_entries = tuple(_changes(nodes)), new_entries(views, rules, now)
    return Decision(membership, job, nodes, actions, changes, alarms, new_nomination, bill_entries, ending)


def plan_actions(
    nodes: Iterable[NodeStatus], rules: Rules, now: float, ending: Closing | None = None
) -> tuple[Action, ...]:
    """The actions in order. An instance gets the tag REMOVED before it is terminated."""
    nodes = list(nodes)
    living = [node for node in nodes if not node.view.terminated]
    return (
        *_stamps(living, rules),
        *_tags(living),
        *_final_tags(node.view for node in nodes if node.view.terminated),
        *_protections(living, rules),
        *(action for node in living for action in _lifecycle_actions(node, rules, now)),
        *_terminations(living, rules, now),
        *(closing_actions(ending, [node.view for node in living], rules, now) if ending is not None else ()),
        *resume_actions(ending, [node.view for node in nodes], rules),
    )


def without_instances(decision: Decision, excluded: AbstractSet[str]) -> Decision:
    """The decision without changes and actions of the `excluded` instances. The membership and its publication stay."""
    if not excluded:
        return decision
    changes = tuple(change for change in decision.changes if change.instance not in excluded)
    metered = tuple(entry for entry in decision.metered if entry.instance not in excluded)
    return replace(
        decision, actions=tuple(_remaining_actions(decision.actions, excluded)), changes=changes, metered=metered
    )


def announced_instances(decision: Decision) -> set[str]:
    """The instances with a changed status or a new status tag."""
    tagged = (action.instances for action in decision.actions if isinstance(action, SetStatusTag))
    return {change.instance for change in decision.changes}.union(*tagged)


def _remaining_actions(actions: Iterable[Action], excluded: AbstractSet[str]) -> Iterator[Action]:
    for action in actions:
        concerned = instances(action)
        remaining = tuple(instance for instance in concerned if instance not in excluded)
        if remaining == concerned:
            yield action
        elif remaining and isinstance(action, _DIVISIBLE):
            yield replace(action, instances=remaining)


def _changes(nodes: Iterable[NodeStatus]) -> Iterator[Change]:
    for node in nodes:
        ack = node.view.facts.acks.status
        before = ack.value if ack is not None else ""
        if before != node.standing.line:
            yield Change(node.view.instance, before, node.standing)


def _stamps(nodes: list[NodeStatus], rules: Rules) -> Iterator[Action]:
    """Ownership tags for new members of the cluster's groups. An instance of another cluster is left alone."""
    unstamped = tuple(node.view.instance for node in nodes if _needs_stamp(node.view, rules))
    if unstamped:
        yield StampOwner(unstamped, rules.policy.cluster)


def _needs_stamp(node: View, rules: Rules) -> bool:
    in_group = node.group in rules.groups and node.phase in ("warm", "launching", "in_service") and not node.unseen
    return in_group and not node.owned and node.tags is not None and OWNER_TAG not in node.tags


def _tags(nodes: list[NodeStatus]) -> Iterator[Action]:
    to_tag: Mapping[Status, list[str]] = {status: [] for status in TAGGED_STATUSES}
    for node in nodes:
        standing = node.standing
        untagged_on_purpose = node.view.base or standing.reason is Reason.NEVER_ASKED or node.view.unseen > 0
        if standing.status in to_tag and not untagged_on_purpose and node.view.status_tag != standing.status:
            to_tag[standing.status].append(node.view.instance)
    for status, tagged in to_tag.items():
        if tagged:
            yield SetStatusTag(tuple(tagged), status)


def _final_tags(terminated: Iterable[View]) -> Iterator[Action]:
    """Final statuses of terminated instances. Otherwise the tag of an instance that EC2 took would say for ever that
    the instance is in the job.
    """
    stale = tuple(node.instance for node in terminated if node.status_tag in ("ADD_QUEUED", "ADDED", "REMOVAL_QUEUED"))
    if stale:
        yield SetStatusTag(stale, "REMOVED", gone=True)


def _protections(nodes: list[NodeStatus], rules: Rules) -> Iterator[Action]:
    for group in rules.groups:
        base_nodes = [
            node.view
            for node in nodes
            if node.view.base and node.view.group == group and node.view.phase == "in_service"
        ]
        unprotected = tuple(node.instance for node in base_nodes if not _is_protected(node, group, rules))
        if unprotected:
            yield Protect(unprotected, group)


def _is_protected(node: View, group: str, rules: Rules) -> bool:
    """Whether the member is protected from scale-in. The controller's own record counts, unless a later settled read
    shows another state.
    """
    protection, read = node.facts.acks.protections.get(group), node.facts.group_read
    if (
        read is not None
        and read.protected is not None
        and (protection is None or read.started > protection.at + rules.policy.settling_seconds)
    ):
        return read.protected
    return protection is not None


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
            elif status == "PREPARE_FAILED" and node_view.requested and node_view.settles_at is None:
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
    heartbeat, answer = node.facts.acks.heartbeats.get(key), node.facts.acks.answers.get(key)
    if answer is not None and answer.result == NO_HEARTBEAT:
        return False
    return now - max(asked_at, heartbeat.at if heartbeat is not None else 0.0) >= rules.policy.heartbeat_seconds


def _terminations(nodes: list[NodeStatus], rules: Rules, now: float) -> Iterator[Action]:
    ungrouped = []
    for node in nodes:
        if not _must_terminate(node, rules, now):
            continue
        if node.view.group is None:
            ungrouped.append(node.view.instance)
        elif node.view.group in rules.groups and node.view.phase not in ("terminating", "left"):
            yield TerminateInGroup(node.view.instance, node.view.group, _removal_requested(node))
    if ungrouped:
        yield Terminate(tuple(ungrouped))


def _removal_requested(node: NodeStatus) -> bool:
    """Whether people asked for one node less, so that the group's capacity is lowered. A group replaces a node that
    failed or that AWS takes. Otherwise each interruption would shrink a Spot group for ever.
    """
    return node.standing.reason in (Reason.JOB_OVER, Reason.IDLE, Reason.OVERTIME) or not node.view.elastic


def _must_terminate(node: NodeStatus, rules: Rules, now: float) -> bool:
    """Whether to terminate the node. Only instances that the cluster launched are terminated, and only if they were
    requested as elastic nodes or took part in the job.

    The ownership tag alone, which people can set, terminates nothing; nor does a group. A stopped machine with its
    elastic tag is kept, because people may start it again.
    """
    node_view = node.view
    if (
        node_view.base
        or node_view.terminate_issued
        or node_view.tags is None
        or node_view.state == "shutting-down"
        or node_view.unseen
    ):
        return False
    orphan = rules.policy.terminate_orphans and orphaned_since(node.standing, node_view, rules, now) is not None
    if node.standing.status != "REMOVED" and not orphan:
        return False
    if node.standing.reason is Reason.STOPPED and node_view.elastic:
        return False
    if node.standing.reason is Reason.ABANDONED and node_view.group is not None:
        return False
    if recently_refused(node_view, now):
        return False
    return node_view.requested and node_view.proven and (node_view.owned or _needs_stamp(node_view, rules))
