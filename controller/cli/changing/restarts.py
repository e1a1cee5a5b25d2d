"""Restart the job of a cluster whose job is over; workers launched before that would be ended at once.

The base nodes have retired and receive no wishes: a machine that boots finds no open job, and begins one.
"""

from __future__ import annotations

from dataclasses import dataclass

from dyntrain.controller.cli.answers.ending import begins_again, job_over
from dyntrain.controller.cli.answers.query import Snapshot
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.core.decisions.closing import over_since
from dyntrain.controller.core.views.arbitration import RUNNING
from dyntrain.controller.core.views.view import View

NOBODY = "no base node is left to begin another; set the desired capacity of its groups of base nodes as it was"
CLOSING_SECONDS = 180.0  # for the nodes' last messages, and the repetitions of the last report


@dataclass(frozen=True)
class Restart:
    """A request to restart. Base nodes in `booted` are rebooted; those in `started` were stopped and are started."""

    cluster: str
    booted: tuple[str, ...]
    started: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        boot = f"{', '.join(self.booted)} will boot anew" if self.booted else ""
        start = f"{', '.join(self.started)} will be started" if self.started else ""
        return f"{'; '.join(filter(None, (boot, start)))}: the base nodes of {self.cluster} begin its job again, afresh"

    @property
    def aws(self) -> str:
        boot = f"aws ec2 reboot-instances --instance-ids {' '.join(self.booted)}" if self.booted else ""
        start = f"aws ec2 start-instances --instance-ids {' '.join(self.started)}" if self.started else ""
        return " && ".join(filter(None, (boot, start)))


def must_not_be_over(snapshot: Snapshot) -> None:
    """Raise GiveUp where a machine that joins now would be ended at once."""
    if not snapshot.decision.job.over:
        return
    if begins_again(snapshot.decision, snapshot.job_facts):
        over = job_over(snapshot.cluster, snapshot.job_facts)
        raise GiveUp(f"{over}, and its base nodes begin another one; try again in a minute")
    again = f"`dyntrain cluster restart {snapshot.cluster}` begins it again" if _base(snapshot) else NOBODY
    raise GiveUp(f"{job_over(snapshot.cluster, snapshot.job_facts)}: {again}")


def restart(snapshot: Snapshot) -> Restart:
    """The request to restart. Raises GiveUp, with what to do, where the job is not over, or no base node is left."""
    name = snapshot.cluster
    if not snapshot.decision.job.over:
        raise GiveUp(f"{name} has no job that is over; `dyntrain status --cluster {name}` says how it stands")
    if _closes(snapshot):
        raise GiveUp(f"the job of {name} has only just ended, and its nodes have not finished; try again in a moment")
    base = _base(snapshot)
    if going := [node.instance for node in base if node.state in ("stopping", "shutting-down")]:
        raise GiveUp(f"{', '.join(going)} of {name} is stopping; repeat the command when it has stopped")
    booted = tuple(node.instance for node in base if node.state in RUNNING)
    started = tuple(node.instance for node in base if node.state == "stopped")
    if not (booted or started):
        raise GiveUp(f"{job_over(name, snapshot.job_facts)}: {NOBODY}")
    return Restart(name, booted, started)


def _base(snapshot: Snapshot) -> list[View]:
    """The base nodes that run, without those whose termination was issued."""
    base = [node.view for node in snapshot.decision.nodes if node.view.base and not node.view.terminated]
    return [node for node in base if not node.terminate_issued and not node.unseen]


def _closes(snapshot: Snapshot) -> bool:
    """Whether a coordinator that started now would only repeat that the job is over. It is not waited for if it died
    before its last report.
    """
    ended = over_since(snapshot.decision.membership, snapshot.decision.job, snapshot.job_facts)
    if snapshot.job_facts is None or snapshot.job_facts.report.closed or ended is None:
        return False
    return snapshot.at - ended < CLOSING_SECONDS
