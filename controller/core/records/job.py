"""The coordinator's last report on its job, and whether this report is still valid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.messages import BASE_TAG, NODE_TYPE_TAG, OWNER_TAG
from dyntrain.controller.contract.reports import JobReport
from dyntrain.controller.core.records.facts import NodeFacts
from dyntrain.controller.core.records.registers import Fact


class JobFacts(Fact):
    """The coordinator's latest report and the time of its arrival. The report with the highest (started_at, sequence)
    is the latest, so a late report of an old job never replaces a report of a newer job.
    """

    report: JobReport  # the coordinator's latest report
    heard_at: float  # when the report arrived

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.report.started_at, self.report.sequence, self.heard_at, self.report.model_dump_json())

    def join(self, other: JobFacts) -> JobFacts:
        return self if self.sort_key >= other.sort_key else other


@dataclass(frozen=True)
class Job:
    """The state of a cluster's job, on which decisions depend. `alive` is true while the coordinator sends reports, and
    `over` is true after the coordinator reported the job's end.
    """

    report: JobReport | None  # the coordinator's latest report
    alive: bool  # the coordinator still sends reports
    over: bool  # the coordinator reported the job's end
    lease_ends: float | None  # when the job counts as silent

    def member(self, instance: str) -> bool:  # whether it is a member of the job
        """Whether a living coordinator reports the instance as a member of the job."""
        return (
            self.alive
            and self.report is not None
            and any(member.instance_id == instance for member in self.report.members)
        )

    def active(self, instance: str) -> bool:  # whether its worker trains
        """Whether a living coordinator reports that the instance has taken part in a training step and is not leaving
        the job.
        """
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
        """The revision of the target that the running job obeys. Without a running job the revision is -1."""
        return self.report.revision if self.alive and self.report is not None else -1


def job_at(facts: JobFacts | None, lease_seconds: float, now: float, finished: bool = False) -> Job:
    """The state of the job at the time `now`. If the coordinator has been silent for longer than its lease, the job is
    not `alive`. `finished` says that the target marks the job as ended. `finished` is used only if no report of the
    coordinator is stored.
    """
    if facts is None:
        return Job(None, alive=False, over=finished, lease_ends=None)
    has_ended = facts.report.state in ("finished", "failed")
    lease_ends = facts.heard_at + lease_seconds
    is_alive = not has_ended and now <= lease_ends
    return Job(facts.report, alive=is_alive, over=has_ended, lease_ends=lease_ends if is_alive else None)


def gauges_of(report: JobReport) -> dict[str, float]:
    """The values of the job's CloudWatch metrics. A job that has ended has no workers and no speed."""
    has_ended = report.state in ("finished", "failed")
    metric_values: dict[str, float] = {
        "Workers": 0 if has_ended else sum(member.processes for member in report.members if member.active),
        "SamplesPerSecond": 0.0 if has_ended else report.samples_per_second,
    }
    if report.progress is not None and report.progress.fraction is not None:
        metric_values["PercentDone"] = round(100 * report.progress.fraction, 3)
    if report.history is not None:
        metric_values["PausedSeconds"] = report.history.paused_seconds
    return metric_values


def may_lead(facts: NodeFacts, cluster: str, term: int, elastic: ElasticTag) -> bool:
    """Whether the node's tags allow the node to run the coordinator of `cluster` while no node is nominated. Before the
    first nomination, only the node that is tagged as master is allowed to run the coordinator. After the last nominated
    node was lost, every base node is allowed to run the coordinator.
    """
    tag_facts = facts.tags_event or facts.tags_read
    tags = tag_facts.tags if tag_facts is not None else {}
    if BASE_TAG not in tags or (OWNER_TAG in tags and tags[OWNER_TAG] != cluster):
        return False
    belongs_to_cluster = OWNER_TAG in tags or elastic.of(cluster) in tags
    return belongs_to_cluster and (term > 0 or tags.get(NODE_TYPE_TAG) == "Master")


def affects_decisions(old: JobFacts | None, new: JobFacts, silence_seconds: float = 15.0) -> bool:
    """Whether the new report can change a decision. A report that only shows progress cannot change a decision. A
    report that arrives more than `silence_seconds` after the old report can always change a decision.
    """
    if old is None or new.heard_at - old.heard_at > silence_seconds:
        return True
    return _decisive_fields(old.report) != _decisive_fields(new.report)


def _decisive_fields(report: JobReport) -> tuple[Any, ...]:
    members = tuple(sorted((member.instance_id, member.active) for member in report.members))
    return (report.job, report.state, report.generation, report.revision, members)
