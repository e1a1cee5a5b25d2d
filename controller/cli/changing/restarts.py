"""A cluster whose job is over: what is launched into it is ended at once, so nothing is; and how another job begins.

Its base nodes have retired, so they do not hear of a wish: a machine that boots finds no job that is not closed, and
begins one.
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
CLOSING_SECONDS = 180.0  # farewells of the nodes, and the last report with its repetitions


@dataclass(frozen=True)
class Restart:
    """The base nodes that are `booted` anew, and those that are `started` because they were stopped."""

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


def must_not_be_over(seen: Snapshot) -> None:
    """Raises GiveUp where a machine that joins now would be ended at once."""
    if not seen.decision.job.over:
        return
    if begins_again(seen.decision, seen.heard):
        raise GiveUp(
            f"{job_over(seen.cluster, seen.heard)}, and its base nodes begin another one; try again in a minute"
        )
    again = f"`dyntrain cluster restart {seen.cluster}` begins it again" if _base(seen) else NOBODY
    raise GiveUp(f"{job_over(seen.cluster, seen.heard)}: {again}")


def restart(seen: Snapshot) -> Restart:
    """Raises GiveUp with what to do where a job is not over, or nobody is left to begin one."""
    name = seen.cluster
    if not seen.decision.job.over:
        raise GiveUp(f"{name} has no job that is over; `dyntrain status --cluster {name}` says how it stands")
    if _closes(seen):
        raise GiveUp(
            f"the job of {name} has only just ended, and its nodes are not done with it; try again in a moment"
        )
    base = _base(seen)
    if going := [node.instance for node in base if node.state in ("stopping", "shutting-down")]:
        raise GiveUp(f"{', '.join(going)} of {name} is on its way down; give the command again when it is")
    booted = tuple(node.instance for node in base if node.state in RUNNING)
    started = tuple(node.instance for node in base if node.state == "stopped")
    if not (booted or started):
        raise GiveUp(f"{job_over(name, seen.heard)}: {NOBODY}")
    return Restart(name, booted, started)


def _base(seen: Snapshot) -> list[View]:
    """The base nodes that are left."""
    base = [node.view for node in seen.decision.nodes if node.view.base and not node.view.terminated]
    return [node for node in base if not node.terminate_issued and not node.unseen]


def _closes(seen: Snapshot) -> bool:
    """Whether a coordinator that started now would only say once more that the job is over. One that dies before it has
    said all is not waited for.
    """
    ended = over_since(seen.decision.membership, seen.decision.job, seen.heard)
    if seen.heard is None or seen.heard.report.closed or ended is None:
        return False
    return seen.at - ended < CLOSING_SECONDS
