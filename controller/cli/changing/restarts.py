"""Restart a cluster's job after the job's end. Workers that are launched between a job's end and the job's restart are
terminated at once.

After a job's end, base nodes ignore the published target membership. A base node that boots after the job's end begins
a new job.
"""

from __future__ import annotations

from dataclasses import dataclass

from dyntrain.controller.cli.answers.ending import is_restarting, job_over_text
from dyntrain.controller.cli.answers.query import Snapshot
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.core.decisions.closing import job_end_time
from dyntrain.controller.core.views.arbitration import RUNNING
from dyntrain.controller.core.views.view import View

NO_BASE_NODE_MESSAGE = (
    "no base node is left to start the job again; restore the desired capacity of the groups of base nodes"
)
CLOSING_SECONDS = 180.0  # after a job's end, for the nodes' last messages and repetitions of the last job report


@dataclass(frozen=True)
class Restart:  # a request to restart a job
    """A request to restart a job by booting the cluster's base nodes."""

    cluster: str  # name of the cluster
    to_reboot: tuple[str, ...]  # ids of running base nodes
    to_start: tuple[str, ...] = ()  # ids of stopped base nodes

    @property
    def sentence(self) -> str:  # describes the request
        reboot_text = f"{', '.join(self.to_reboot)} will be rebooted" if self.to_reboot else ""
        start_text = f"{', '.join(self.to_start)} will be started" if self.to_start else ""
        actions_text = "; ".join(filter(None, (reboot_text, start_text)))
        return f"{actions_text}: the base nodes of {self.cluster} begin its job again, afresh"

    @property
    def aws_command(self) -> str:
        reboot_command = f"aws ec2 reboot-instances --instance-ids {' '.join(self.to_reboot)}" if self.to_reboot else ""
        start_command = f"aws ec2 start-instances --instance-ids {' '.join(self.to_start)}" if self.to_start else ""
        return " && ".join(filter(None, (reboot_command, start_command)))


def refuse_if_job_over(snapshot: Snapshot) -> None:
    """Raise GiveUp if the cluster's job is over, since a machine that joins now would be terminated at once."""
    if not snapshot.decision.job.over:
        return
    if is_restarting(snapshot.decision, snapshot.job_facts):
        sentence = job_over_text(snapshot.cluster, snapshot.job_facts)
        raise GiveUp(f"{sentence}, and the base nodes start another job; try again in a minute")
    restart_advice = (
        f"`dyntrain cluster restart {snapshot.cluster}` starts the job again"
        if _base_nodes(snapshot)
        else NO_BASE_NODE_MESSAGE
    )
    raise GiveUp(f"{job_over_text(snapshot.cluster, snapshot.job_facts)}: {restart_advice}")


def plan_restart(snapshot: Snapshot) -> Restart:
    """The request to restart the cluster's job. Raises GiveUp if the job is not over, has only just ended, or has no
    base node left.
    """
    cluster = snapshot.cluster
    if not snapshot.decision.job.over:
        raise GiveUp(
            f"the job of {cluster} cannot be restarted, since it is not over; `dyntrain status --cluster {cluster}` "
            "shows its state"
        )
    if _is_reporting_end(snapshot):
        raise GiveUp(f"the job of {cluster} has just ended and cannot be restarted yet; try again in a moment")
    base_nodes = _base_nodes(snapshot)
    if stopping_nodes := [node.instance for node in base_nodes if node.state in ("stopping", "shutting-down")]:
        raise GiveUp(
            f"base nodes of {cluster} are still stopping: {', '.join(stopping_nodes)}. Repeat the command in a minute"
        )
    to_reboot = tuple(node.instance for node in base_nodes if node.state in RUNNING)
    to_start = tuple(node.instance for node in base_nodes if node.state == "stopped")
    if not (to_reboot or to_start):
        raise GiveUp(f"{job_over_text(cluster, snapshot.job_facts)}: {NO_BASE_NODE_MESSAGE}")
    return Restart(cluster, to_reboot, to_start)


def _base_nodes(snapshot: Snapshot) -> list[View]:
    """The cluster's existing base nodes, without nodes whose termination the controller has ordered."""
    base_nodes = [node.view for node in snapshot.decision.nodes if node.view.base and not node.view.terminated]
    return [node for node in base_nodes if not node.terminate_issued and not node.unseen]


def _is_reporting_end(snapshot: Snapshot) -> bool:
    """Whether the coordinator may still be reporting the job's end, so that a restart would be too early. If the
    coordinator died before reporting the end, the result is False from CLOSING_SECONDS after the job's end.
    """
    job_ended_at = job_end_time(snapshot.decision.membership, snapshot.decision.job, snapshot.job_facts)
    if snapshot.job_facts is None or snapshot.job_facts.report.closed or job_ended_at is None:
        return False
    return snapshot.at - job_ended_at < CLOSING_SECONDS
