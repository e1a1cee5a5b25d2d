"""Turns events into stored facts, and does nothing else.

The steps for each event:
1. observe: parse the payload into facts (pure)
2. gather: read the item of the event's instance, group or cluster
3. merge: add new facts and write over the version that was read; after a lost race, read again.
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

ATTEMPTS = 8  # of a conditional write
NOT_COORDINATOR = (  # why a job report is ignored
    "the sender is not known as the node that runs the cluster's coordinator; its next report is checked again"
)
UNNAMED_FACTS_KEPT_SECONDS = 86_400.0  # for an instance without cluster
GONE_FACTS_KEPT_SECONDS = 7 * 86_400.0  # for a terminated instance; longer than events are replayed


@dataclass(frozen=True)
class IntakeOutcome:
    """The result of handling an event. `reason` explains the outcome, and may be empty."""

    kind: Literal["applied", "unchanged", "stale", "ignored", "quarantined"]  # what became of the event's facts
    reason: str = ""  # explains the outcome
    instance: str = ""  # id of the event's instance
    cluster: str = ""  # name of the event's cluster


def take_in(ports: Ports, event: Mapping[str, Any], elastic: ElasticTag, keys: Keys = ()) -> IntakeOutcome:
    """Store the facts that one event contains. `keys` are the public keys that verify the sender of a report. Raises
    RetryLater when the table cannot be written, so that the event is delivered again.
    """
    intake_outcome = _store_observation(ports, observe(event, elastic, keys), elastic, is_authentic=bool(keys))
    log_level = logging.ERROR if intake_outcome.kind == "quarantined" else logging.INFO
    log_fields = {
        "outcome": intake_outcome.kind,
        "reason": intake_outcome.reason,
        "instance": intake_outcome.instance,
        "cluster": intake_outcome.cluster,
    }
    log.log(
        log_level,
        "event",
        extra={**log_fields, "detail_type": str(event.get("detail-type", "")), "event_id": str(event.get("id", ""))},
    )
    return intake_outcome


def _store_observation(
    ports: Ports, observation: Observation, elastic: ElasticTag, is_authentic: bool
) -> IntakeOutcome:
    if isinstance(observation, DroppedEvent):
        return IntakeOutcome(observation.outcome, observation.reason, observation.instance)
    if isinstance(observation, JobFacts):
        if is_authentic and (reason := _reason_to_ignore(ports, observation.report, elastic)):
            return IntakeOutcome("ignored", reason, observation.report.instance_id, observation.report.cluster)
        return _store_job_report(ports, observation)
    if isinstance(observation, GroupFacts):
        facts_are_new = merge_group(ports, observation, wake=True)
        return IntakeOutcome(
            "applied" if facts_are_new else "unchanged", f"group {observation.group} could not launch an instance"
        )
    if isinstance(observation, SeveralNodes):
        return _combined_outcome([_store_node_facts(ports, node) for node in observation.nodes])
    return _store_node_facts(ports, observation)


def _combined_outcome(outcomes: list[IntakeOutcome]) -> IntakeOutcome:
    """Combine the outcomes for the instances of one event. The combined outcome is "applied" if the event was new for
    at least one instance.
    """
    outcome_kinds = {outcome.kind for outcome in outcomes}
    combined_kind: Literal["applied", "unchanged", "stale"] = (
        "applied" if "applied" in outcome_kinds else "stale" if "stale" in outcome_kinds else "unchanged"
    )
    return IntakeOutcome(combined_kind, instance=" ".join(outcome.instance for outcome in outcomes))


def _store_node_facts(ports: Ports, news: NodeFacts) -> IntakeOutcome:
    cluster = news.named.cluster if news.named is not None else ""
    stored_node = ports.nodes.get(news.instance) if news.preparation is not None else None
    if (
        stored_node is not None
        and news.preparation is not None
        and (reason := unlikely_claim(stored_node.facts, news.preparation))
    ):
        return IntakeOutcome("quarantined", reason, news.instance, cluster)
    facts_before = merge(ports, news, wake=True, known_node=stored_node)
    if facts_before is None:
        return IntakeOutcome("applied", instance=news.instance, cluster=cluster)
    if facts_before.supersedes(news):
        return IntakeOutcome("stale", "something newer is known", news.instance, cluster)
    return IntakeOutcome("unchanged", instance=news.instance, cluster=cluster)


def merge(ports: Ports, news: NodeFacts, *, wake: bool, known_node: StoredNode | None = None) -> NodeFacts | None:
    """Merge the new facts `news` into the node's table item. `known_node` is the node's item, if the caller has already
    read the item.

    Returns None if the item was written. If the stored facts already contained `news`, returns the stored facts. Raises
    RetryLater if other runs wrote the node's item first in all ATTEMPTS attempts.
    """
    for _ in range(ATTEMPTS):
        stored_node = known_node or ports.nodes.get(news.instance) or StoredNode(NodeFacts(instance=news.instance), 0)
        known_node = None
        merged_facts = stored_node.facts.join(news)
        if merged_facts == stored_node.facts and stored_node.version:
            return merged_facts
        belongs_to_cluster = merged_facts.named is not None or merged_facts.group_event is not None
        try:
            ports.nodes.put(
                StoredNode(merged_facts, stored_node.version),
                wake=wake and belongs_to_cluster,
                expires=_expiry_time(merged_facts, ports.clock()),
            )
        except Conflict:
            continue
        return None
    raise RetryLater(
        f"storing facts of {news.instance} failed: other runs wrote them {ATTEMPTS} times in a row; "
        "deliver the event again"
    )


def merge_group(ports: Ports, news: GroupFacts, *, wake: bool) -> bool:
    """Merge the new facts `news` into the Auto Scaling group's table item, and return whether any fact was new. Raises
    RetryLater if other runs wrote the group's item first in all ATTEMPTS attempts.
    """
    for _ in range(ATTEMPTS):
        stored_group = ports.group_records.get(news.group) or StoredGroup(GroupFacts(group=news.group), 0)
        merged_facts = stored_group.facts.join(news)
        if merged_facts == stored_group.facts and stored_group.version:
            return False
        try:
            ports.group_records.put(StoredGroup(merged_facts, stored_group.version), wake=wake)
        except Conflict:
            continue
        return True
    raise RetryLater(
        f"storing facts of group {news.group} failed: other runs wrote them {ATTEMPTS} times in a row; "
        "deliver the event again"
    )


def _expiry_time(facts: NodeFacts, now: float) -> float | None:
    if facts.terminated:
        return now + GONE_FACTS_KEPT_SECONDS
    return None if facts.named is not None or facts.group_event is not None else now + UNNAMED_FACTS_KEPT_SECONDS


def _reason_to_ignore(ports: Ports, report: JobReport, elastic: ElasticTag) -> str:
    """The reason to ignore a job report whose sender is authentic, or "" if the report is to be accepted. An ignored
    report is not lost, because a coordinator repeats its report until the report is accepted.
    """
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
    return (
        "" if node is not None and may_lead(node.facts, report.cluster, membership.term, elastic) else NOT_COORDINATOR
    )


def _store_job_report(ports: Ports, news: JobFacts) -> IntakeOutcome:
    cluster = news.report.cluster
    for _ in range(ATTEMPTS):
        stored_facts, version = ports.jobs.get(cluster)
        merged_facts = stored_facts.join(news) if stored_facts is not None else news
        if merged_facts == stored_facts:
            return IntakeOutcome("unchanged" if stored_facts == news else "stale", cluster=cluster)
        try:
            ports.jobs.put(cluster, merged_facts, version, wake=affects_decisions(stored_facts, merged_facts))
        except Conflict:
            continue
        ports.metrics.gauges(cluster, gauges_of(merged_facts.report))
        return IntakeOutcome("applied", cluster=cluster)
    raise RetryLater(
        f"storing the job report of {cluster} failed: other runs wrote it {ATTEMPTS} times in a row; "
        "deliver the event again"
    )
