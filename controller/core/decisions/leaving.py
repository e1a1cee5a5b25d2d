"""Decide which nodes wait for one of the cluster's `leave_windows` after users asked the nodes to leave. Pure.

A member whose elastic tag was removed waits for a leave window without time limit. If an Auto Scaling group terminates
a member because the desired capacity was lowered, the member waits at most as long as the group's lifecycle hook
allows. Machines that AWS takes, machines that stop, and nodes that the job has lost do not wait for a leave window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dyntrain.controller.contract.leave_windows import LEAVE_NOW, LEAVE_TAG
from dyntrain.controller.core.decisions.windows import next_opening
from dyntrain.controller.core.records.job import Job
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.core.views.view import Rules, View

_NO_LIMIT = float("inf")


@dataclass(frozen=True)
class WindowWait:
    """A node's wait for a leave window, which ends at the time `until` at the latest. `detail` is a text that explains
    the wait to users.
    """

    until: float  # when the wait ends at the latest
    detail: str  # a text for people


def window_waits(old: Membership, views: Iterable[View], job: Job, rules: Rules, now: float) -> dict[str, WindowWait]:
    """The present waits for a leave window, by the instance id of the waiting node. Only members of the target wait for
    a leave window, because a node outside the job disturbs nobody by leaving.
    """
    next_window = next_opening(rules.policy.leave_windows, now)
    if next_window is None or job.over:
        return {}
    member_ids = set(old.members)
    waits_by_instance = {}
    for node in views:
        leave_deadline = _leave_deadline(node, job, rules) if node.instance in member_ids else None
        if leave_deadline is None or leave_deadline <= now:
            continue
        wait_text = f"the next window opens at {next_window.text}"
        if leave_deadline < next_window.at:
            wait_text = f"its group waits for {(leave_deadline - now) / 60:.0f} minutes more; {wait_text}"
        waits_by_instance[node.instance] = WindowWait(min(leave_deadline, next_window.at), wait_text)
    return waits_by_instance


def _leave_deadline(node: View, job: Job, rules: Rules) -> float | None:
    """The latest time at which the node has to leave, if the node may wait for a leave window. Returns None if the node
    is not leaving, or if the node must leave without waiting.
    """
    if (
        node.base
        or node.terminated
        or not node.prepared
        or node.tags is None
        or _machine_taken(node)
        or _lost_by_job(node, job)
    ):
        return None
    if node.tags.get(LEAVE_TAG, "").strip().lower() == LEAVE_NOW:
        return None
    if node.leave_reason is None:
        return None if node.elastic else _NO_LIMIT
    hook_times: Mapping[str, float] = {key: hook.at for key, hook in node.waiting_hooks("terminate")}
    if node.leave_reason is not Reason.GROUP_TERMINATES or not hook_times:
        return None
    # the lead time before the hook's end is that of AWS's maintenance, so that a boundary comes before the end
    return min(hook_times.values()) + rules.policy.hook_cap_seconds - rules.policy.notice_lead_seconds


def _machine_taken(node: View) -> bool:
    return node.leave_by is not None or node.state in ("stopping", "stopped", "shutting-down")


def _lost_by_job(node: View, job: Job) -> bool:
    """Whether the job trains without the node. Returns False while the job's members are unknown, because the job is
    being formed or its coordinator is silent.
    """
    job_is_running = job.alive and job.report is not None and job.report.state == "running"
    return job_is_running and not job.member(node.instance)
