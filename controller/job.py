"""What the coordinator says of its job, and whether it may still be believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from controller.contract import JobReport
from controller.facts import Fact


class JobFacts(Fact):
    """The latest report with the time it was heard. The highest (started_at, sequence) counts, so an older job never comes back."""

    report: JobReport
    heard_at: float

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.report.started_at, self.report.sequence, self.heard_at, self.report.model_dump_json())

    def join(self, other: JobFacts) -> JobFacts:
        return self if self.order >= other.order else other


@dataclass(frozen=True)
class Job:
    """A job as the decisions see it: `alive` while its coordinator is heard of, `over` once it said so itself."""

    report: JobReport | None
    alive: bool
    over: bool
    lease_ends: float | None

    def member(self, instance: str) -> bool:
        """Whether a coordinator that is alive still has the instance among those that train or form."""
        return self.alive and self.report is not None and any(member.instance_id == instance for member in self.report.members)

    def active(self, instance: str) -> bool:
        return self.alive and self.report is not None and any(member.instance_id == instance and member.active for member in self.report.members)

    @property
    def revision(self) -> int:
        """The target revision the running job obeys; -1 without a job."""
        return self.report.revision if self.alive and self.report is not None else -1


def job_at(facts: JobFacts | None, lease_seconds: float, now: float) -> Job:
    """A coordinator silent for longer than its lease counts as no job."""
    if facts is None:
        return Job(None, alive=False, over=False, lease_ends=None)
    over = facts.report.state in ("finished", "failed")
    ends = facts.heard_at + lease_seconds
    alive = not over and now <= ends
    return Job(facts.report, alive=alive, over=over, lease_ends=ends if alive else None)


def matters(old: JobFacts | None, new: JobFacts, silence_seconds: float = 15.0) -> bool:
    """Whether the new report can change a decision, rather than only telling progress; a voice after a silence always can."""
    if old is None or new.heard_at - old.heard_at > silence_seconds:
        return True
    return _decisive(old.report) != _decisive(new.report)


def _decisive(report: JobReport) -> tuple[Any, ...]:
    members = tuple(sorted((member.instance_id, member.active) for member in report.members))
    return (report.job, report.state, report.generation, report.revision, members)
