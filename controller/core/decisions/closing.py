"""Closing a cluster that costs money and does nothing any more, or has used up its time: its base nodes are stopped or
ended, as the policy says; the default keeps them. Pure.

Nodes started after the moment that closed the cluster are not affected, so that a cluster that somebody starts again is
not ended for the past. Until then it stays closed: each node remembers why, and the cluster is closed while all its
base nodes are.
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
from dyntrain.controller.core.records.acks import Announced
from dyntrain.controller.core.records.job import Job, JobFacts
from dyntrain.controller.core.views.arbitration import RUNNING
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.core.views.view import Rules, View

AFTER_JOB_SECONDS = 600.0  # time for people to start another job
PAUSE_SECONDS = 60.0  # after a refusal by AWS, and after a call without visible effect


@dataclass(frozen=True)
class Closing:
    """How a cluster is being closed: nodes started by the time `before` are affected, with `everything` all that run.
    `rests`: every base node has been closed.
    """

    how: Literal["keep", "stop", "terminate"]
    reason: Reason
    before: float
    everything: bool = False
    rests: bool = False

    def concerns(self, node: View) -> bool:
        began = node.started
        if began is None:
            return False
        return began <= self.before or (self.everything and node.state in RUNNING)


def closing(
    views: Iterable[View], old: Membership, job: Job, job_facts: JobFacts | None, rules: Rules, now: float
) -> Closing | None:
    """Why and how the cluster is being closed; None: it goes on. After a lost table, silence counts only from the
    rebuild on.
    """
    policy = rules.policy
    nodes = list(views)
    if (why := _rests([node for node in nodes if node.base])) is not None:
        return Closing(policy.after_job, why, now, everything=True, rests=True)
    if policy.after_job == "keep":
        return None
    running = _starts(node for node in nodes if node.base)
    if policy.max_hours is not None:
        limit = now - policy.max_hours * 3600.0
        if running and min(running) <= limit:
            return Closing(policy.after_job, Reason.OVERTIME, limit, everything=True)
    ended = over_since(old, job, job_facts)
    if ended is not None and now - ended >= AFTER_JOB_SECONDS and any(began <= ended for began in running):
        return Closing(policy.after_job, Reason.JOB_OVER, ended)
    if policy.idle_hours is not None and (starts := running or _starts(nodes)):
        times = [
            *([job_facts.heard_at] if job_facts is not None else []),
            *([old.rebuilt_at] if old.rebuilt_at else []),
        ]
        since = max([*starts, *times])
        if now - since >= policy.idle_hours * 3600.0:
            return Closing(policy.after_job, Reason.IDLE, since)
    return None


def over_since(old: Membership, job: Job, job_facts: JobFacts | None) -> float | None:
    """When the job was first reported to be over (a restarted coordinator reports it again); None: it is not."""
    if not job.over:
        return None
    return old.finished_at if old.finished_at is not None else job_facts.heard_at if job_facts is not None else None


def closed(ending: Closing, nodes: Iterable[View], rules: Rules, now: float) -> Iterator[Action]:
    """Actions on the base nodes that run; elastic ones are ended as at the end of a job. A node is ended together with
    its place in its group, which would otherwise launch another one.
    """
    alone, stopped, groups = [], list[str](), dict[str, list[str]]()
    for node in nodes:
        if not _to_close(node, ending, rules) or refused_lately(node, now):
            continue
        if node.closed and _lately(node.facts.acks.closed, now):  # requested, and not visible yet
            continue
        if ending.how == "stop":
            stopped.append(node.instance)
            if node.group is not None:
                groups.setdefault(node.group, []).append(node.instance)
        elif node.group is None:
            alone.append(node.instance)
        else:
            yield TerminateInGroup(node.instance, node.group, decrement=True, closes=ending.reason)
    if alone:
        yield Terminate(tuple(alone), closes=ending.reason)
    for group, instances in groups.items():
        yield SuspendReplacement(tuple(instances), group)
    if stopped:
        yield StopBase(tuple(stopped), closes=ending.reason)


def resumed(ending: Closing | None, nodes: Iterable[View], rules: Rules) -> Iterator[Action]:
    """Groups that may replace their members again: all stopped members run again, or were ended with their places. A
    member still stopped would be replaced at once.
    """
    waiting: dict[str, list[View]] = {}
    for node in nodes:
        for group in sorted(node.facts.acks.suspended):
            if group in rules.groups and _suspended(node, group):
                waiting.setdefault(group, []).append(node)
    for group, members in waiting.items():
        back = [node for node in members if not node.terminated]
        ended = [node for node in members if node.terminated and node.terminate_issued]
        still = any(
            node.closed or node.state != "running" or (ending is not None and ending.concerns(node)) for node in back
        )
        if not still and (back or ended):
            yield ResumeReplacement(tuple(node.instance for node in (*back, *ended)), group)


def refused_lately(node: View, now: float) -> bool:
    """Whether AWS refused an action on it recently, so that it is not repeated yet."""
    return _lately(node.facts.acks.refused, now)


def _lately(mark: Announced | None, now: float) -> bool:
    return mark is not None and now - mark.at < PAUSE_SECONDS


def _rests(base: list[View]) -> Reason | None:
    """Why the cluster is closed, if all its base nodes are, and the last one started, terminated or not: otherwise a
    cluster that lost its only base node would be closed for an old reason.
    """
    last = max(base, key=lambda node: (node.started or 0.0, node.instance), default=None)
    if last is None or any(node.closed is None for node in base if not node.terminated):
        return None
    return last.closed


def _starts(nodes: Iterable[View]) -> list[float]:
    running = (node.started for node in nodes if node.state in RUNNING and not node.terminated)
    return [began for began in running if began is not None]


def _suspended(node: View, group: str) -> bool:
    acks = node.facts.acks
    done = acks.resumed.get(group)
    return done is None or done.at < acks.suspended[group].at


def _to_close(node: View, ending: Closing, rules: Rules) -> bool:
    """Whether to close the node. As for other terminations, the ownership tag alone, which people can set, ends
    nothing.
    """
    if ending.how == "keep" or not node.base or not ending.concerns(node) or node.state not in RUNNING:
        return False
    if node.terminated or node.terminate_issued or node.unseen or not (node.proven and node.owned):
        return False
    return node.group is None or (node.group in rules.groups and node.phase == "in_service")
