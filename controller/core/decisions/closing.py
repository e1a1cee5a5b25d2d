"""Close a cluster that is idle or has reached its time limit: stop or terminate its base nodes, as the policy says. By
default, base nodes are neither stopped nor terminated. Pure.

A closed cluster stays closed until somebody starts a base node again, because closing does not affect nodes that start
later. The reason for closing a base node is stored in the facts of the node. A cluster is closed while all its base
nodes are closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from dyntrain.controller.core.decisions.actions import (
    Action,
    ResumeReplacement,
    StopBase,
    SuspendReplacement,
    Terminate,
    TerminateInGroup,
)
from dyntrain.controller.core.records.acks import Announcement
from dyntrain.controller.core.records.job import Job, JobFacts
from dyntrain.controller.core.views.arbitration import RUNNING
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.core.views.view import Rules, View

AFTER_JOB_SECONDS = 600.0  # time for people to start another job
PAUSE_SECONDS = 60.0  # after a refusal by AWS, and after a call without visible effect


@dataclass(frozen=True)
class Closing:
    """How a cluster is being closed. The closing affects nodes that started not later than the time `started_until` or,
    if `everything` is true, all running nodes. `complete` is true when every base node has been closed.
    """

    method: Literal["keep", "stop", "terminate"]  # what happens to base nodes
    reason: Reason  # why the cluster is closed
    started_until: float  # nodes that started later are not affected
    everything: bool = False  # all running nodes are affected
    complete: bool = False  # every base node has been closed

    def concerns(self, node: View) -> bool:
        started_at = node.started
        if started_at is None:
            return False
        return started_at <= self.started_until or (self.everything and node.state in RUNNING)


def plan_closing(
    views: Iterable[View], old: Membership, job: Job, job_facts: JobFacts | None, rules: Rules, now: float
) -> Closing | None:
    """Why and how the cluster is being closed. Returns None if the cluster stays open. If the DynamoDB table was lost
    and rebuilt, the cluster's idle time begins no earlier than the rebuilding of the table.
    """
    policy = rules.policy
    nodes = list(views)
    if (closed_reason := _closed_reason([node for node in nodes if node.base])) is not None:
        return Closing(policy.after_job, closed_reason, now, everything=True, complete=True)
    if policy.after_job == "keep":
        return None
    base_start_times = _start_times(node for node in nodes if node.base)
    if policy.max_hours is not None:
        latest_start = now - policy.max_hours * 3600.0
        if base_start_times and min(base_start_times) <= latest_start:
            return Closing(policy.after_job, Reason.OVERTIME, latest_start, everything=True)
    job_ended_at = job_end_time(old, job, job_facts)
    if (
        job_ended_at is not None
        and now - job_ended_at >= AFTER_JOB_SECONDS
        and any(started_at <= job_ended_at for started_at in base_start_times)
    ):
        return Closing(policy.after_job, Reason.JOB_OVER, job_ended_at)
    if policy.idle_hours is not None and (start_times := base_start_times or _start_times(nodes)):
        activity_times = [
            *([job_facts.heard_at] if job_facts is not None else []),
            *([old.rebuilt_at] if old.rebuilt_at else []),
        ]
        idle_since = max([*start_times, *activity_times])
        if now - idle_since >= policy.idle_hours * 3600.0:
            return Closing(policy.after_job, Reason.IDLE, idle_since)
    return None


def job_end_time(old: Membership, job: Job, job_facts: JobFacts | None) -> float | None:
    """The time of the first report of the job's end. A restarted coordinator repeats the report of the end, which does
    not change the returned time. Returns None if the job has not ended.
    """
    if not job.over:
        return None
    return old.finished_at if old.finished_at is not None else job_facts.heard_at if job_facts is not None else None


def closing_actions(ending: Closing, nodes: Iterable[View], rules: Rules, now: float) -> Iterator[Action]:
    """The actions that stop or terminate the running base nodes of a cluster that is being closed. When a base node is
    terminated, the desired capacity of its Auto Scaling group is lowered, so that the group launches no replacement.
    The actions of closing do not concern elastic nodes, which the controller terminates in the same way as after a job.
    """
    ungrouped_nodes, stopped_nodes, stopped_by_group = [], list[str](), dict[str, list[str]]()
    for node in nodes:
        if not _must_close_node(node, ending, rules) or recently_refused(node, now):
            continue
        if node.closed and _is_recent(
            node.facts.acks.closed, now
        ):  # the action was requested, but its effect is not visible yet
            continue
        if ending.method == "stop":
            stopped_nodes.append(node.instance)
            if node.group is not None:
                stopped_by_group.setdefault(node.group, []).append(node.instance)
        elif node.group is None:
            ungrouped_nodes.append(node.instance)
        else:
            yield TerminateInGroup(node.instance, node.group, decrement=True, closes=ending.reason)
    if ungrouped_nodes:
        yield Terminate(tuple(ungrouped_nodes), closes=ending.reason)
    for group, instances in stopped_by_group.items():
        yield SuspendReplacement(tuple(instances), group)
    if stopped_nodes:
        yield StopBase(tuple(stopped_nodes), closes=ending.reason)


def resume_actions(ending: Closing | None, nodes: Iterable[View], rules: Rules) -> Iterator[Action]:
    """The actions that let Auto Scaling groups replace their members again after a cluster was closed. The replacement
    stays suspended until each stopped member has been started again, or has been terminated with the group's desired
    capacity lowered. A group whose replacement resumes too early would replace its stopped members at once.
    """
    suspended_members: dict[str, list[View]] = {}
    for node in nodes:
        for group in sorted(node.facts.acks.suspended):
            if group in rules.groups and _still_suspended(node, group):
                suspended_members.setdefault(group, []).append(node)
    for group, group_members in suspended_members.items():
        living_members = [node for node in group_members if not node.terminated]
        terminated_members = [node for node in group_members if node.terminated and node.terminate_issued]
        any_stopped = any(
            node.closed or node.state != "running" or (ending is not None and ending.concerns(node))
            for node in living_members
        )
        if not any_stopped and (living_members or terminated_members):
            yield ResumeReplacement(tuple(node.instance for node in (*living_members, *terminated_members)), group)


def recently_refused(node: View, now: float) -> bool:
    """Whether AWS refused an action on the node less than a minute ago. After a refusal by AWS, the controller waits
    for a minute before the next attempt.
    """
    return _is_recent(node.facts.acks.refused, now)


def _is_recent(ack: Announcement | None, now: float) -> bool:
    return ack is not None and now - ack.at < PAUSE_SECONDS


def _closed_reason(base_nodes: list[View]) -> Reason | None:
    """Why the cluster is closed. Returns None unless all base nodes that exist are closed. The base node that started
    last must have been closed as well, even if the node no longer exists. Without the check of the base node that
    started last, a cluster that loses its only base node would be closed for the outdated reason of an older base node.
    """
    last_started_node = max(base_nodes, key=lambda node: (node.started or 0.0, node.instance), default=None)
    if last_started_node is None or any(node.closed is None for node in base_nodes if not node.terminated):
        return None
    return last_started_node.closed


def _start_times(nodes: Iterable[View]) -> list[float]:
    start_times = (node.started for node in nodes if node.state in RUNNING and not node.terminated)
    return [started_at for started_at in start_times if started_at is not None]


def _still_suspended(node: View, group: str) -> bool:
    node_acks = node.facts.acks
    resumption = node_acks.resumed.get(group)
    return resumption is None or resumption.at < node_acks.suspended[group].at


def _must_close_node(node: View, ending: Closing, rules: Rules) -> bool:
    """Whether the node must be stopped or terminated to close the cluster. The ownership tag alone does not prove that
    the cluster owns the node, because users can set this tag.
    """
    if ending.method == "keep" or not node.base or not ending.concerns(node) or node.state not in RUNNING:
        return False
    if node.terminated or node.terminate_issued or node.unseen or not (node.proven and node.owned):
        return False
    return node.group is None or (node.group in rules.groups and node.phase == "in_service")
