"""Turns events into facts, and nothing else.

1. observe: parse the payload into facts (pure)
2. gather: read the item of the event's instance, group or cluster
3. merge: add new facts and write over the version that was read; after a lost race, read again
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import Conflict, RetryLater
from dyntrain.controller.contract.instance_identity import Keys
from dyntrain.controller.contract.reports import JobReport
from dyntrain.controller.core.incoming.bounds import unlikely_claim
from dyntrain.controller.core.incoming.events import DroppedEvent, Observation, SeveralNodes, observe
from dyntrain.controller.core.records.facts import NodeFacts
from dyntrain.controller.core.records.groups import GroupFacts
from dyntrain.controller.core.records.job import JobFacts, affects_decisions, gauges_of, may_lead
from dyntrain.controller.loops.ports import Ports, StoredGroup, StoredNode

log = logging.getLogger("dyntrain.intake")

ATTEMPTS = 8
NOT_BASE = "the sender is not known as the node that runs the cluster's coordinator; its next report is checked again"
UNNAMED_SECONDS = 86_400.0  # time until facts of an instance without cluster expire
GONE_SECONDS = 7 * 86_400.0  # time until facts of a terminated instance expire, longer than events are replayed


@dataclass(frozen=True)
class IntakeOutcome:
    """Result of handling an event; `reason` may be empty."""

    kind: Literal["applied", "unchanged", "stale", "ignored", "quarantined"]
    reason: str = ""
    instance: str = ""
    cluster: str = ""


def take_in(ports: Ports, event: Mapping[str, Any], elastic: ElasticTag, keys: Keys = ()) -> IntakeOutcome:
    """Handle one event. `keys` as for `observe`. Raises RetryLater when the table cannot be written, so that the event
    is delivered again.
    """
    outcome = _take_in(ports, observe(event, elastic, keys), elastic, proven=bool(keys))
    level = logging.ERROR if outcome.kind == "quarantined" else logging.INFO
    extra = {
        "outcome": outcome.kind,
        "reason": outcome.reason,
        "instance": outcome.instance,
        "cluster": outcome.cluster,
    }
    log.log(
        level,
        "event",
        extra={**extra, "detail_type": str(event.get("detail-type", "")), "event_id": str(event.get("id", ""))},
    )
    return outcome


def _take_in(ports: Ports, news: Observation, elastic: ElasticTag, proven: bool) -> IntakeOutcome:
    if isinstance(news, DroppedEvent):
        return IntakeOutcome(news.outcome, news.reason, news.instance)
    if isinstance(news, JobFacts):
        if proven and (reason := _reason_to_ignore(ports, news.report, elastic)):
            return IntakeOutcome("ignored", reason, news.report.instance_id, news.report.cluster)
        return _take_job_report(ports, news)
    if isinstance(news, GroupFacts):
        applied = merge_group(ports, news, wake=True)
        return IntakeOutcome("applied" if applied else "unchanged", f"group {news.group} could not launch an instance")
    if isinstance(news, SeveralNodes):
        return _combined_outcome([_take_node_facts(ports, node) for node in news.nodes])
    return _take_node_facts(ports, news)


def _combined_outcome(outcomes: list[IntakeOutcome]) -> IntakeOutcome:
    """The outcome of an event about several instances: applied if it was new for one of these."""
    kinds = {outcome.kind for outcome in outcomes}
    kind: Literal["applied", "unchanged", "stale"] = (
        "applied" if "applied" in kinds else "stale" if "stale" in kinds else "unchanged"
    )
    return IntakeOutcome(kind, instance=" ".join(outcome.instance for outcome in outcomes))


def _take_node_facts(ports: Ports, news: NodeFacts) -> IntakeOutcome:
    cluster = news.named.cluster if news.named is not None else ""
    stored = ports.nodes.get(news.instance) if news.preparation is not None else None
    if (
        stored is not None
        and news.preparation is not None
        and (reason := unlikely_claim(stored.facts, news.preparation))
    ):
        return IntakeOutcome("quarantined", reason, news.instance, cluster)
    before = merge(ports, news, wake=True, known=stored)
    if before is None:
        return IntakeOutcome("applied", instance=news.instance, cluster=cluster)
    if before.supersedes(news):
        return IntakeOutcome("stale", "something newer is known", news.instance, cluster)
    return IntakeOutcome("unchanged", instance=news.instance, cluster=cluster)


def merge(ports: Ports, news: NodeFacts, *, wake: bool, known: StoredNode | None = None) -> NodeFacts | None:
    """Join `news` into the node's item; `known` is the item if the caller has read it.

    Returns None after a write, else the stored facts, which already contained `news`. Raises RetryLater after too many
    lost races.
    """
    for _ in range(ATTEMPTS):
        stored = known or ports.nodes.get(news.instance) or StoredNode(NodeFacts(instance=news.instance), 0)
        known = None
        merged = stored.facts.join(news)
        if merged == stored.facts and stored.version:
            return merged
        belongs_to_cluster = merged.named is not None or merged.group_event is not None
        try:
            ports.nodes.put(
                StoredNode(merged, stored.version),
                wake=wake and belongs_to_cluster,
                expires=_expiry_time(merged, ports.clock()),
            )
        except Conflict:
            continue
        return None
    raise RetryLater(
        f"the facts of {news.instance} were written by others {ATTEMPTS} times in a row; deliver the event again"
    )


def merge_group(ports: Ports, news: GroupFacts, *, wake: bool) -> bool:
    """Join the facts into the group's item; returns whether anything was new. Raises RetryLater after too many lost
    races.
    """
    for _ in range(ATTEMPTS):
        stored = ports.group_records.get(news.group) or StoredGroup(GroupFacts(group=news.group), 0)
        merged = stored.facts.join(news)
        if merged == stored.facts and stored.version:
            return False
        try:
            ports.group_records.put(StoredGroup(merged, stored.version), wake=wake)
        except Conflict:
            continue
        return True
    raise RetryLater(
        f"the facts of group {news.group} were written by others {ATTEMPTS} times in a row; deliver the event again"
    )


def _expiry_time(facts: NodeFacts, now: float) -> float | None:
    if facts.terminated:
        return now + GONE_SECONDS
    return None if facts.named is not None or facts.group_event is not None else now + UNNAMED_SECONDS


def _reason_to_ignore(ports: Ports, report: JobReport, elastic: ElasticTag) -> str:
    """Why an authentic report does not count, else "". A coordinator repeats its report until it is received."""
    membership = ports.clusters.get(report.cluster).membership
    if membership.coordinator is not None:
        if membership.coordinator == report.instance_id:
            return ""
        job_facts, _ = ports.jobs.get(report.cluster)
        if job_facts is not None and (job_facts.report.job, job_facts.report.instance_id) == (
            report.job,
            report.instance_id,
        ):
            return ""  # the nominated node has not taken over the job yet
        return "another node is nominated to run the coordinator"
    node = ports.nodes.get(report.instance_id)
    return "" if node is not None and may_lead(node.facts, report.cluster, membership.term, elastic) else NOT_BASE


def _take_job_report(ports: Ports, news: JobFacts) -> IntakeOutcome:
    cluster = news.report.cluster
    for _ in range(ATTEMPTS):
        stored, version = ports.jobs.get(cluster)
        merged = stored.join(news) if stored is not None else news
        if merged == stored:
            return IntakeOutcome("unchanged" if stored == news else "stale", cluster=cluster)
        try:
            ports.jobs.put(cluster, merged, version, wake=affects_decisions(stored, merged))
        except Conflict:
            continue
        ports.metrics.gauges(cluster, gauges_of(merged.report))
        return IntakeOutcome("applied", cluster=cluster)
    raise RetryLater(
        f"the job report of {cluster} was written by others {ATTEMPTS} times in a row; deliver the event again"
    )
