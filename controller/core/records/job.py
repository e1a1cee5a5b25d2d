"""The coordinator's report of its job, and whether the report still counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.messages import BASE_TAG, NODE_TYPE_TAG, OWNER_TAG
from dyntrain.controller.contract.reports import JobReport
from dyntrain.controller.core.records.facts import NodeFacts
from dyntrain.controller.core.records.registers import Fact


class JobFacts(Fact):
    """The latest report and the time of its arrival. The highest (started_at, sequence) counts, so an older job never
    replaces a newer job.
    """

    report: JobReport
    heard_at: float

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.report.started_at, self.report.sequence, self.heard_at, self.report.model_dump_json())

    def join(self, other: JobFacts) -> JobFacts:
        return self if self.order >= other.order else other


@dataclass(frozen=True)
class Job:
    """A job as decisions see it. `alive` is true while the coordinator reports, and `over` after the coordinator
    reported the end.
    """

    report: JobReport | None
    alive: bool
    over: bool
    lease_ends: float | None

    def member(self, instance: str) -> bool:
        """Whether a living coordinator reports the instance as a member that trains or is being formed."""
        return (
            self.alive
            and self.report is not None
            and any(member.instance_id == instance for member in self.report.members)
        )

    def active(self, instance: str) -> bool:
        """Whether the instance has taken part in a step and belongs to the present or the next generation."""
        return (
            self.alive
            and self.report is not None
            and any(
                member.instance_id == instance and member.active and not member.leaving
                for member in self.report.members
            )
        )

    @property
    def revision(self) -> int:
        """The target revision that the running job obeys; -1 without a running job."""
        return self.report.revision if self.alive and self.report is not None else -1


def job_at(facts: JobFacts | None, lease_seconds: float, now: float, finished: bool = False) -> Job:
    """The job at the time `now`. A coordinator that is silent for longer than its lease counts as no job. `finished`
    says that the job is over according to the target, and counts until a report arrives.
    """
    if facts is None:
        return Job(None, alive=False, over=finished, lease_ends=None)
    over = facts.report.state in ("finished", "failed")
    ends = facts.heard_at + lease_seconds
    alive = not over and now <= ends
    return Job(facts.report, alive=alive, over=over, lease_ends=ends if alive else None)


def gauges_of(report: JobReport) -> dict[str, float]:
    """Values for CloudWatch's curves. A job that is over has no workers and no speed."""
    over = report.state in ("finished", "failed")
    gauges: dict[str, float] = {
        "Workers": 0 if over else sum(member.processes for member in report.members if member.active),
        "SamplesPerSecond": 0.0 if over else report.samples_per_second,
    }
    if report.progress is not None and report.progress.fraction is not None:
        gauges["PercentDone"] = round(100 * report.progress.fraction, 3)
    if report.history is not None:
        gauges["PausedSeconds"] = report.history.paused_seconds
    return gauges


def may_lead(facts: NodeFacts, cluster: str, term: int, elastic: ElasticTag) -> bool:
    """Whether the node's tags allow the node to run the coordinator of `cluster` while no node is nominated. Before the
    first nomination only the tagged master may; after the last nominated node was lost, any base node may.
    """
    tag_facts = facts.tags_event or facts.tags_read
    tags = tag_facts.tags if tag_facts is not None else {}
    if BASE_TAG not in tags or (OWNER_TAG in tags and tags[OWNER_TAG] != cluster):
        return False
    of_cluster = OWNER_TAG in tags or elastic.of(cluster) in tags
    return of_cluster and (term > 0 or tags.get(NODE_TYPE_TAG) == "Master")


def affects_decisions(old: JobFacts | None, new: JobFacts, silence_seconds: float = 15.0) -> bool:
    """Whether the new report can change a decision, rather than only show progress. A report after a silence always
    can.
    """
    if old is None or new.heard_at - old.heard_at > silence_seconds:
        return True
    return _decisive_fields(old.report) != _decisive_fields(new.report)


def _decisive_fields(report: JobReport) -> tuple[Any, ...]:
    members = tuple(sorted((member.instance_id, member.active) for member in report.members))
    return (report.job, report.state, report.generation, report.revision, members)
