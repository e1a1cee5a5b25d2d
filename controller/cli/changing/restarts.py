"""Restart the job of a cluster whose job is over. Workers launched before the restart would be ended at once.

After a job, the base nodes follow no target. A base node that boots finds no open job, and begins a new job.
"""

from __future__ import annotations

from dataclasses import dataclass

from dyntrain.controller.cli.answers.ending import is_restarting, job_over_text
from dyntrain.controller.cli.answers.query import Snapshot
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.core.decisions.closing import over_since
from dyntrain.controller.core.views.arbitration import RUNNING
from dyntrain.controller.core.views.view import View

NO_BASE_NODE = "no base node is left to start the job again; restore the desired capacity of the groups of base nodes"
CLOSING_SECONDS = 180.0  # time for the nodes' last messages and for repetitions of the last job report


@dataclass(frozen=True)
class Restart:
    """A request to restart a job. `to_reboot`: base nodes to reboot; `to_start`: stopped base nodes to start."""

    cluster: str
    to_reboot: tuple[str, ...]
    to_start: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        boot = f"{', '.join(self.to_reboot)} will be rebooted" if self.to_reboot else ""
        start = f"{', '.join(self.to_start)} will be started" if self.to_start else ""
        return f"{'; '.join(filter(None, (boot, start)))}: the base nodes of {self.cluster} begin its job again, afresh"

    @property
    def aws_command(self) -> str:
        boot = f"aws ec2 reboot-instances --instance-ids {' '.join(self.to_reboot)}" if self.to_reboot else ""
        start = f"aws ec2 start-instances --instance-ids {' '.join(self.to_start)}" if self.to_start else ""
        return " && ".join(filter(None, (boot, start)))


def refuse_if_over(snapshot: Snapshot) -> None:
    """Raise GiveUp for a job that is over, since a machine that joins now would be ended at once."""
    if not snapshot.decision.job.over:
        return
    if is_restarting(snapshot.decision, snapshot.job_facts):
        sentence = job_over_text(snapshot.cluster, snapshot.job_facts)
        raise GiveUp(f"{sentence}, and the base nodes start another job; try again in a minute")
    again = (
        f"`dyntrain cluster restart {snapshot.cluster}` starts the job again" if _base_nodes(snapshot) else NO_BASE_NODE
    )
    raise GiveUp(f"{job_over_text(snapshot.cluster, snapshot.job_facts)}: {again}")


def restart(snapshot: Snapshot) -> Restart:
    """The request to restart the job. Raises GiveUp for a job that is not over, or a cluster without base nodes."""
    name = snapshot.cluster
    if not snapshot.decision.job.over:
        raise GiveUp(f"the job of {name} is not over; `dyntrain status --cluster {name}` shows its state")
    if _is_closing(snapshot):
        raise GiveUp(f"the job of {name} has just ended, and its nodes are still stopping; try again in a moment")
    base = _base_nodes(snapshot)
    if stopping := [node.instance for node in base if node.state in ("stopping", "shutting-down")]:
        raise GiveUp(
            f"base nodes of {name} are stopping: {', '.join(stopping)}; repeat the command once they have stopped"
        )
    to_reboot = tuple(node.instance for node in base if node.state in RUNNING)
    to_start = tuple(node.instance for node in base if node.state == "stopped")
    if not (to_reboot or to_start):
        raise GiveUp(f"{job_over_text(name, snapshot.job_facts)}: {NO_BASE_NODE}")
    return Restart(name, to_reboot, to_start)


def _base_nodes(snapshot: Snapshot) -> list[View]:
    """The existing base nodes, without nodes whose termination was ordered."""
    base = [node.view for node in snapshot.decision.nodes if node.view.base and not node.view.terminated]
    return [node for node in base if not node.terminate_issued and not node.unseen]


def _is_closing(snapshot: Snapshot) -> bool:
    """Whether the coordinator may still be reporting the job's end, so that a restart is too early. A coordinator that
    died before its last report counts as ended after CLOSING_SECONDS.
    """
    ended = over_since(snapshot.decision.membership, snapshot.decision.job, snapshot.job_facts)
    if snapshot.job_facts is None or snapshot.job_facts.report.closed or ended is None:
        return False
    return snapshot.at - ended < CLOSING_SECONDS
