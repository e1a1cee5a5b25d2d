"""The status of a node, derived from its view, the target and the job. A node's status is derived anew for each
decision, not stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dyntrain.controller.contract.messages import Status
from dyntrain.controller.contract.plain_text import in_brief
from dyntrain.controller.core.decisions.closing import Closing
from dyntrain.controller.core.decisions.leaving import WindowWait
from dyntrain.controller.core.records.job import Job
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.core.views.view import Rules, View

FIRST_REPORT_SECONDS = (
    780.0  # from the launch to the first report; less than the timeout of the template's launch hooks
)


@dataclass(frozen=True)
class Standing:
    """A node's status and reason. `next_change` is the next time at which the status may change without new facts.
    `next_change` is None if the status changes only with new facts.
    """

    status: Status
    reason: Reason
    next_change: float | None = None  # time of the next change without new facts
    detail: str = ""  # a text for people

    @property
    def line(self) -> str:  # status and reason
        """A node's status and reason in one string. The controller stores the last announced string, so that each
        change of the status or the reason is announced once.
        """
        return f"{self.status} {self.reason}"

    @property
    def in_job(self) -> bool:
        """Whether the coordinator has reported that the node is in the job."""
        return self.status == "ADDED" or self.reason is Reason.LEAVES_AT_BOUNDARY


@dataclass(frozen=True)
class NodeStatus:
    view: View  # the node's present state
    standing: Standing  # the node's status and its reason


def derive_status(
    node: View,
    membership: Membership,
    job: Job,
    rules: Rules,
    now: float,
    reason: Reason | None = None,
    wait: WindowWait | None = None,
    ending: Closing | None = None,
) -> Standing:
    """Derive the node's status. `reason` is the target plan's reason for this node, `wait` is the node's wait for a
    leave window, and `ending` is set while the cluster is being closed.
    """
    closing_reason = _closing_reason(node, job, ending)
    new_standing = (
        _status_after_closing(node, closing_reason)
        if closing_reason is not None
        else _status_without_closing(node, membership, job, rules, now, reason)
    )
    if wait is not None and new_standing.reason is Reason.WAITS_FOR_WINDOW:
        new_standing = replace(new_standing, next_change=wait.until, detail=wait.detail)
    change_times = [time for time in (new_standing.next_change, node.changes_at) if time is not None]
    return replace(new_standing, next_change=min(change_times, default=None))


def hook_cap_reached(node: View, rules: Rules, now: float) -> bool:
    """Whether the node's launch has waited for the node's preparation as long as the cluster's policy allows
    (`hook_cap_seconds`). Returns False for a base node, and for a node that nobody asked to join.
    """
    if node.base or (node.tags is not None and not node.requested) or node.phase not in ("warm", "launching"):
        return False
    if node.preparation is not None and node.preparation.outcome in ("prepared", "prepare_failed"):
        return False
    return any(now - hook.at >= rules.policy.hook_cap_seconds for _, hook in node.waiting_hooks("launch"))


def _closing_reason(node: View, job: Job, ending: Closing | None) -> Reason | None:
    """Why the closing of the cluster makes or made the node leave. Returns None for a node that the closing does not
    affect. The closing does not affect elastic nodes that leave after the end of a job, because elastic nodes leave
    after a job even if the cluster is not closed.
    """
    if node.terminated:
        return None
    if node.closed is not None:
        return node.closed
    must_leave = ending is not None and ending.concerns(node) and (node.base or not job.over)
    return ending.reason if ending is not None and must_leave else None


def _status_after_closing(node: View, why: Reason) -> Standing:
    if node.terminate_issued:
        return Standing("REMOVED", Reason.TERMINATE_ISSUED)
    refusal_ack, closing_ack = node.facts.acks.refused, node.facts.acks.closed
    if node.base and refusal_ack is not None and (closing_ack is None or closing_ack.at < refusal_ack.at):
        return Standing("REMOVED", Reason.GROUP_REFUSES, detail=refusal_ack.value)
    return Standing("REMOVED", why, detail=_refusal_text(node))


def _status_without_closing(
    node: View, membership: Membership, job: Job, rules: Rules, now: float, reason: Reason | None
) -> Standing:
    if node.terminated:
        return Standing("GONE", Reason.TERMINATED, detail=_prepare_failure(node))
    if node.base:
        return _status_if_wanted(node, membership, job, now, reason)
    if node.terminate_issued:
        return Standing("REMOVED", Reason.TERMINATE_ISSUED)
    if hook_cap_reached(node, rules, now) and not job.member(node.instance):
        return Standing("PREPARE_FAILED", Reason.HOOK_CAP)
    if job.over:
        return Standing("REMOVED", Reason.JOB_OVER, detail=_refusal_text(node) or _job_failure(job, "the job failed: "))
    if reason is Reason.WAITS_FOR_WINDOW:
        return Standing("REMOVAL_QUEUED", reason)
    if reason is Reason.HELD_BY_MINIMUM:
        return _status_of_member(node, membership, job, reason)
    if node.tags is None and node.leave_reason is None:
        return Standing("WAITING", Reason.UNKNOWN_TO_EC2 if node.unseen else Reason.TAGS_UNKNOWN)
    return (
        _status_if_wanted(node, membership, job, now, reason)
        if node.wanted
        else _status_if_unwanted(node, membership, job)
    )


def _status_if_wanted(node: View, membership: Membership, job: Job, now: float, reason: Reason | None) -> Standing:
    preparation = node.preparation
    if preparation is None:
        if node.unseen:
            return Standing("WAITING", Reason.UNKNOWN_TO_EC2)
        report_expected = node.owned or node.base or node.group is not None
        return (
            _status_if_unprepared(node, now)
            if report_expected
            else Standing("WAITING", Reason.NO_BOOTSTRAP, node.settles_at)
        )
    if preparation.outcome == "prepare_failed":
        return Standing("PREPARE_FAILED", Reason.PREPARE_FAILED, detail=preparation.reason)
    if preparation.outcome == "worker_failed":
        return Standing("WAITING", Reason.WORKER_FAILED, detail=preparation.reason)
    if node.phase == "warm":
        return Standing("WAITING", Reason.IN_WARM_POOL)
    if node.instance not in membership.members:
        return Standing("ADD_QUEUED", reason or Reason.WAITS_FOR_TARGET)
    if node.base and node.leave_reason is not None:
        reason = Reason.BASE_PROTECTED
    elif node.base and node.tags is not None and not node.base_tagged:
        reason = Reason.BASE_UNTAGGED
    return _status_of_member(node, membership, job, reason)


def _status_if_unprepared(node: View, now: float) -> Standing:
    if node.heard is not None:
        return Standing("WAITING", Reason.PREPARING, node.settles_at, node.heard.doing)
    first_report_due = node.started + FIRST_REPORT_SECONDS if node.started is not None else None
    if (
        first_report_due is not None
        and now >= first_report_due
        and node.state in (None, "running")
        and node.phase != "warm"
    ):
        return Standing("WAITING", Reason.NEVER_HEARD, node.settles_at)
    change_times = [time for time in (first_report_due, node.settles_at) if time is not None and time > now]
    return Standing("WAITING", Reason.PREPARING, min(change_times, default=None))


def _status_of_member(node: View, membership: Membership, job: Job, reason: Reason | None) -> Standing:
    """The status of a member of the target. The status becomes ADDED only after the node's worker took part in a
    training step. If an earlier target dropped the member, the status becomes ADDED only after the coordinator has
    obeyed the target that lists the member again.
    """
    if job.active(node.instance) and job.revision >= membership.back.get(node.instance, 0):
        return Standing("ADDED", reason or Reason.TRAINING, job.lease_ends)
    if job.member(node.instance):
        return Standing("ADD_QUEUED", reason or Reason.JOINING, job.lease_ends)
    if job.over:
        return Standing("ADD_QUEUED", reason or _job_end_reason(job), detail=_job_failure(job))
    silence_reason = Reason.NO_BASE_NODE if membership.term and membership.coordinator is None else Reason.NO_JOB
    return Standing(
        "ADD_QUEUED", reason or (Reason.WAITS_FOR_BOUNDARY if job.alive else silence_reason), job.lease_ends
    )


def _job_end_reason(job: Job) -> Reason:
    """The reason that says how the job ended. Returns JOB_OVER if the target says that the job has ended, but no report
    says how the job ended.
    """
    if job.report is None:
        return Reason.JOB_OVER
    return Reason.JOB_FAILED if job.report.state == "failed" else Reason.JOB_FINISHED


def _job_failure(job: Job, prefix: str = "") -> str:
    """The text `prefix` followed by the reason why the job failed. Returns "" if the job did not fail."""
    report = job.report
    return prefix + in_brief(report.reason) if report is not None and report.state == "failed" else ""


def _status_if_unwanted(node: View, membership: Membership, job: Job) -> Standing:
    if job.member(node.instance):
        return Standing("REMOVAL_QUEUED", Reason.LEAVES_AT_BOUNDARY, job.lease_ends)
    drop_revision = membership.leaving.get(node.instance)
    if job.alive and drop_revision is not None and job.revision < drop_revision:
        return Standing("REMOVAL_QUEUED", Reason.LEAVE_UNCONFIRMED, job.lease_ends)
    if node.leave_reason is Reason.REPLACED and job.report is not None and not job.alive:
        # the node's ps-lite servers may be in use, although the coordinator is silent
        return Standing("REMOVAL_QUEUED", Reason.LEAVE_UNCONFIRMED)
    leave_reason = node.leave_reason or (Reason.UNTAGGED if node.requested else Reason.NEVER_ASKED)
    if leave_reason is Reason.UNTAGGED and not node.owned and node.group is None:
        leave_reason = Reason.NOT_OWNED
    if node.elastic and _prepare_failure(node) and node.leave_reason is not None:
        # The node is terminated because its preparation failed: show people the failure.
        return Standing("PREPARE_FAILED", Reason.PREPARE_FAILED, detail=_prepare_failure(node))
    if _refusal_text(node):
        return Standing("REMOVED", Reason.GROUP_REFUSES, detail=_refusal_text(node))
    detail = node.preparation.reason if leave_reason is Reason.WORKER_FAILED and node.preparation is not None else ""
    return Standing("REMOVED", leave_reason, detail=detail)


def _prepare_failure(node: View) -> str:
    """Why the script prepare-data failed on the node. Returns "" if prepare-data did not fail."""
    preparation = node.preparation
    return preparation.reason if preparation is not None and preparation.outcome == "prepare_failed" else ""


def _refusal_text(node: View) -> str:
    refusal_ack = node.facts.acks.refused
    return refusal_ack.value if refusal_ack is not None else ""
