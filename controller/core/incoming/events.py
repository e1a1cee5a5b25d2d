"""Parse EventBridge events into facts. The table `_PARSERS` has a parser for each source and detail-type. Events for
which the table has no parser are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.instance_identity import Keys, Verification, judge
from dyntrain.controller.contract.leave_windows import LEAVE_TAG
from dyntrain.controller.contract.messages import (
    BASE_TAG,
    COORDINATOR_SOURCE,
    INSTANCE_ID,
    NODE_SOURCE,
    NODE_TYPE_TAG,
    OWNER_TAG,
    STATUS_TAG,
    sender,
)
from dyntrain.controller.contract.notices import GROUP_ENDS, NOTICE_SECONDS, RECOMMENDED
from dyntrain.controller.contract.reports import (
    JOB_DETAIL_TYPES,
    NODE_DETAIL_TYPES,
    JobReport,
    NodeReport,
)
from dyntrain.controller.contract.wrong_fields import wrong_fields
from dyntrain.controller.core.incoming.bounds import CLOCK_SECONDS, impossible_claim
from dyntrain.controller.core.incoming.event_rules import CAPACITY_CHANGE_TYPES, INTERRUPTION_TYPES
from dyntrain.controller.core.incoming.payloads import (
    CapacityChange,
    CapacityInterruption,
    Envelope,
    HealthChange,
    HealthEntity,
    InstanceRefresh,
    Interruption,
    LifecycleAction,
    ScalingResult,
    StateChange,
    TagChange,
)
from dyntrain.controller.core.records.facts import (
    ClusterStatement,
    GroupEvent,
    Hook,
    NodeFacts,
    Notice,
    Phase,
    Preparation,
    SignOfLife,
    StateEvent,
    TagsEvent,
    base_tag,
)
from dyntrain.controller.core.records.groups import GroupFacts, LaunchFailure
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.view import GROUP_TAG
from pydantic import ValidationError

_STORED_TAGS = (OWNER_TAG, BASE_TAG, NODE_TYPE_TAG, GROUP_TAG, LEAVE_TAG)


@dataclass(frozen=True)
class DroppedEvent:
    """An event that gave no facts: the event was `ignored` on purpose, or `quarantined` because the event is malformed
    or not credible.
    """

    outcome: Literal["ignored", "quarantined"]
    reason: str  # why the event gave no facts
    instance: str = ""  # the instance that the event concerns; "" if unknown


@dataclass(frozen=True)
class SeveralNodes:
    """The facts of an event about several instances. The facts of each instance are stored separately."""

    nodes: tuple[NodeFacts, ...]


Observation = NodeFacts | JobFacts | GroupFacts | SeveralNodes | DroppedEvent


def observe(event: Mapping[str, Any], elastic: ElasticTag, keys: Keys = ()) -> Observation:
    """The facts of an EventBridge event. Raises no error if the event is a JSON object: a malformed event becomes a
    DroppedEvent that names the wrong fields. If `keys` are given, a report must prove that its sender is the node or
    coordinator that the report names.
    """
    try:
        envelope = Envelope.model_validate(event)
        source_prefix, sender_cluster = sender(envelope.source)
        parser = _PARSERS.get((source_prefix, envelope.detail_type))
        if parser is None:
            return DroppedEvent("ignored", f"no handler for {envelope.detail_type!r} of {envelope.source!r}")
        if sender_cluster is not None and envelope.detail.get("cluster") != sender_cluster:
            return DroppedEvent("quarantined", f"cluster: {envelope.source} may not speak for another cluster")
        if (
            keys
            and source_prefix in (NODE_SOURCE, COORDINATOR_SOURCE)
            and (problem := _identity_problem(envelope, source_prefix, keys))
        ):
            return problem
        return parser(envelope, elastic)
    except ValidationError as error:
        return DroppedEvent("quarantined", wrong_fields(error, "event"))
    except (ValueError, TypeError, OverflowError) as error:
        return DroppedEvent("quarantined", str(error))


def kept_tags(tags: Mapping[str, str], elastic: ElasticTag) -> dict[str, str]:
    """Select the tags on which decisions depend, and drop all other tags."""
    return {key: value for key, value in tags.items() if key in _STORED_TAGS or elastic.has(key)}


def kept_read_tags(tags: Mapping[str, str], elastic: ElasticTag) -> dict[str, str]:
    """Select the tags that are stored after a describe call: the tags that `kept_tags` selects, and the status tag. The
    value of the status tag shows whether the controller has to write the status again.
    """
    stored_tags = kept_tags(tags, elastic)
    return {**stored_tags, STATUS_TAG: tags[STATUS_TAG]} if STATUS_TAG in tags else stored_tags


def tagged_cluster(tags: Mapping[str, str], changed: list[str], elastic: ElasticTag) -> str | None:
    """The cluster that is named by the ownership tag, else by an elastic tag, else by an elastic tag that was just
    removed. Returns None if neither an ownership tag nor an elastic tag names a cluster.
    """
    if OWNER_TAG in tags:
        return tags[OWNER_TAG]
    sorted_tag_keys = sorted((key not in changed, key) for key in tags if elastic.has(key))
    elastic_keys = [key for _, key in sorted_tag_keys] or sorted(key for key in changed if elastic.has(key))
    return elastic.cluster(elastic_keys[0]) or None if elastic_keys else None


def elastic_tag_cluster(
    tags: Iterable[str], changed: Iterable[str], elastic: ElasticTag, at: float
) -> ClusterStatement | None:
    """The cluster whose elastic tag the instance carries, or carried before this change of its tags."""
    present_keys, removed_keys = sorted(filter(elastic.has, tags)), sorted(filter(elastic.has, changed))
    cluster = elastic.cluster((present_keys or removed_keys or [""])[0])
    return ClusterStatement(at=at, cluster=cluster) if cluster else None


def _parse_tag_change(envelope: Envelope, elastic: ElasticTag) -> Observation:
    change = TagChange.model_validate(envelope.detail)
    if (change.service, change.resource_type) != ("ec2", "instance"):
        return DroppedEvent("ignored", f"tags of {change.service} {change.resource_type}, not of an EC2 instance")
    instance_id = envelope.resources[0].rpartition("instance/")[2] if envelope.resources else ""
    if not re.fullmatch(INSTANCE_ID, instance_id):
        return DroppedEvent("quarantined", f"{instance_id!r} is no instance id", instance_id)
    if not any(elastic.has(key) or key == LEAVE_TAG for key in change.changed_tag_keys):
        return DroppedEvent("ignored", "no elastic tag changed", instance_id)
    changed_at = change.version_timestamp / 1000 if change.version_timestamp is not None else envelope.time
    cluster = tagged_cluster(change.tags, change.changed_tag_keys, elastic)
    return NodeFacts(
        instance=instance_id,
        named=ClusterStatement(at=changed_at, cluster=cluster) if cluster else None,
        based=base_tag(change.tags, changed_at),
        wished=elastic_tag_cluster(change.tags, change.changed_tag_keys, elastic, changed_at),
        tags_event=TagsEvent(version=change.version, at=changed_at, tags=kept_tags(change.tags, elastic)),
    )


def _parse_state_change(envelope: Envelope, elastic: ElasticTag) -> Observation:
    change = StateChange.model_validate(envelope.detail)
    return NodeFacts(
        instance=change.instance,
        state_event=StateEvent(at=envelope.time, state=change.state),
        terminated=change.state == "terminated",
        started_at=envelope.time if change.state == "pending" else 0.0,
    )


def _interruption_parser(kind: str) -> Callable[[Envelope, ElasticTag], Observation]:
    def parse_event(envelope: Envelope, elastic: ElasticTag) -> Observation:
        notice = Interruption.model_validate(envelope.detail)
        warning_seconds = 0.0 if notice.action == "hibernate" else NOTICE_SECONDS  # hibernation begins at its notice
        return NodeFacts(
            instance=notice.instance, notices=(Notice(kind=kind, deadline=envelope.time + warning_seconds),)
        )

    return parse_event


def _parse_capacity_notice(envelope: Envelope, elastic: ElasticTag) -> Observation:
    notice = CapacityInterruption.model_validate(envelope.detail)
    deadline = notice.ends if notice.ends is not None else envelope.time + NOTICE_SECONDS
    return NodeFacts(instance=notice.instance, notices=(Notice(kind="capacity", deadline=deadline),))


def _parse_capacity_change(envelope: Envelope, elastic: ElasticTag) -> Observation:
    """An event about a capacity reservation gives no facts: the event only causes the controller to read all capacity
    reservations.
    """
    change = CapacityChange.model_validate(envelope.detail)
    return DroppedEvent(
        "ignored", f"{envelope.detail_type} {change.reservation}: the reserved pool reads reservations itself"
    )


def _parse_lifecycle_action(envelope: Envelope, elastic: ElasticTag) -> Observation:
    action = LifecycleAction.model_validate(envelope.detail)
    if action.event == "autoscaling:TEST_NOTIFICATION":
        return DroppedEvent("ignored", "a test notification")
    if action.transition is None:
        return DroppedEvent(
            "quarantined", "LifecycleTransition: a lifecycle action without its transition", action.instance
        )
    if not re.fullmatch(INSTANCE_ID, action.instance):
        return DroppedEvent("quarantined", f"{action.instance!r} is no instance id", action.instance)
    if not action.group or not action.hook:
        return DroppedEvent("quarantined", "a lifecycle action without group or hook", action.instance)
    launching = action.transition == "autoscaling:EC2_INSTANCE_LAUNCHING"
    for_warm_pool = action.destination == "WarmPool"
    phase: Phase = ("warm" if for_warm_pool else "launching") if launching else "terminating"
    hook = Hook(
        at=envelope.time,
        group=action.group,
        hook=action.hook,
        transition="launch" if launching else "terminate",
        token=action.token or None,
        warm=for_warm_pool,
    )
    return NodeFacts(
        instance=action.instance,
        group_event=GroupEvent(at=envelope.time, group=action.group, phase=phase),
        hooks={action.token or f"{action.hook}@{envelope.time:.0f}": hook},
    )


def _scaling_result_parser(phase: Phase) -> Callable[[Envelope, ElasticTag], Observation]:
    def parse_event(envelope: Envelope, elastic: ElasticTag) -> Observation:
        result = ScalingResult.model_validate(envelope.detail)
        if not re.fullmatch(INSTANCE_ID, result.instance):
            return DroppedEvent("quarantined", f"{result.instance!r} is no instance id", result.instance)
        observed_phase: Phase = "warm" if result.destination == "WarmPool" else phase
        return NodeFacts(
            instance=result.instance, group_event=GroupEvent(at=envelope.time, group=result.group, phase=observed_phase)
        )

    return parse_event


def _parse_launch_failure(envelope: Envelope, elastic: ElasticTag) -> Observation:
    """The facts of a failed launch. The event is ignored if the launch failed because the controller abandoned the
    launch. An abandoned launch does not show that AWS lacks capacity.
    """
    result = ScalingResult.model_validate(envelope.detail)
    message = (result.message or "").strip()
    if "lifecycle action" in message.lower():
        return DroppedEvent("ignored", f"an instance of group {result.group} was abandoned: {message}", result.instance)
    return GroupFacts(group=result.group, failed=LaunchFailure(at=envelope.time, message=message[:1000]))


def _parse_refresh(envelope: Envelope, elastic: ElasticTag) -> Observation:
    refresh = InstanceRefresh.model_validate(envelope.detail)
    return DroppedEvent(
        "ignored", f"group {refresh.group}: the effects of the refresh are read from the group's members"
    )


def _parse_health_event(envelope: Envelope, elastic: ElasticTag) -> Observation:
    change = HealthChange.model_validate(envelope.detail)
    if change.service != "EC2" or change.category != "scheduledChange":
        return DroppedEvent("ignored", f"{change.code or 'an event'} of {change.service} is no scheduled change of EC2")
    affected_instances = [entity for entity in change.entities if re.fullmatch(INSTANCE_ID, entity.instance)]
    if not affected_instances:
        return DroppedEvent("ignored", f"{change.code or 'a scheduled change'} names no instance")
    if change.starts is None:
        return DroppedEvent("quarantined", "startTime: a scheduled change without its time")
    return SeveralNodes(
        tuple(_maintenance_facts(change, entity, change.starts, envelope.time) for entity in affected_instances)
    )


def _maintenance_facts(change: HealthChange, entity: HealthEntity, starts: float, received_at: float) -> NodeFacts:
    has_ended = (change.status or "").lower() == "closed" or (entity.status or "").upper() == "RESOLVED"
    updated_at = change.updated if change.updated is not None else received_at
    notice = Notice(kind="health", deadline=starts, ref=change.arn, said_at=updated_at, closed=has_ended)
    return NodeFacts(instance=entity.instance, notices=(notice,))


def _parse_terminate_failure(envelope: Envelope, elastic: ElasticTag) -> Observation:
    result = ScalingResult.model_validate(envelope.detail)
    return DroppedEvent(
        "ignored",
        f"group {result.group} could not terminate an instance and will try again: {result.message}",
        result.instance,
    )


def _identity_problem(envelope: Envelope, source: str, keys: Keys) -> DroppedEvent | None:
    report_model = NodeReport if source == NODE_SOURCE else JobReport
    report = report_model.model_validate(envelope.detail)
    verification = judge(report.identity, report.instance_id, report.private_ip, keys, envelope.account)
    return (
        None
        if verification is Verification.GENUINE
        else DroppedEvent("quarantined", f"the report is refused: {verification.value}", report.instance_id)
    )


def _parse_node_report(envelope: Envelope, elastic: ElasticTag) -> Observation:
    report = NodeReport.model_validate(envelope.detail)
    if reason := impossible_claim(report, envelope.time):
        return DroppedEvent("quarantined", reason, report.instance_id)
    cluster_statement = ClusterStatement(at=report.at, cluster=report.cluster)
    if report.outcome == "interrupted":
        deadline = report.deadline if report.deadline is not None else report.at + NOTICE_SECONDS
        notice_kind = report.reason if report.reason in (RECOMMENDED, GROUP_ENDS) else "node"
        return NodeFacts(
            instance=report.instance_id, named=cluster_statement, notices=(Notice(kind=notice_kind, deadline=deadline),)
        )
    if report.outcome == "alive":
        sign_of_life = SignOfLife(at=report.at, doing=report.reason.strip(), script=report.script)
        return NodeFacts(instance=report.instance_id, named=cluster_statement, heard=sign_of_life)
    preparation = Preparation(
        attempt=report.attempt,
        at=report.at,
        outcome=report.outcome,
        reason=report.reason.strip(),
        private_ip=report.private_ip,
        script=report.script,
    )
    return NodeFacts(instance=report.instance_id, named=cluster_statement, preparation=preparation)


def _parse_job_report(envelope: Envelope, elastic: ElasticTag) -> Observation:
    """The facts of a coordinator's report on its job. A report whose job starts in the future is refused. A report
    whose job starts in the future would hide all later reports, because the controller uses only reports of the job
    that started last.
    """
    report = JobReport.model_validate(envelope.detail)
    latest_possible_time = envelope.time + CLOCK_SECONDS
    if report.started_at > latest_possible_time or report.sequence > latest_possible_time * 1000:
        return DroppedEvent(
            "quarantined", "started_at, sequence: the report is from the future; look at the coordinator's clock"
        )
    return JobFacts(report=report.model_copy(update={"identity": None}), heard_at=envelope.time)


_REFRESH_STATES = (
    "Started",
    "Checkpoint Reached",
    "Succeeded",
    "Cancelled",
    "Failed",
    "Rollback Started",
    "Rollback Succeeded",
    "Rollback Failed",
)

_PARSERS: Mapping[tuple[str, str], Callable[[Envelope, ElasticTag], Observation]] = {
    ("aws.tag", "Tag Change on Resource"): _parse_tag_change,
    ("aws.ec2", "EC2 Instance State-change Notification"): _parse_state_change,
    ("aws.ec2", "EC2 Spot Instance Interruption Warning"): _interruption_parser("spot"),
    ("aws.ec2", "EC2 Instance Rebalance Recommendation"): _interruption_parser("rebalance"),
    ("aws.health", "AWS Health Event"): _parse_health_event,
    **dict.fromkeys((("aws.ec2", detail_type) for detail_type in INTERRUPTION_TYPES), _parse_capacity_notice),
    **dict.fromkeys((("aws.ec2", detail_type) for detail_type in CAPACITY_CHANGE_TYPES), _parse_capacity_change),
    ("aws.autoscaling", "EC2 Instance-launch Lifecycle Action"): _parse_lifecycle_action,
    ("aws.autoscaling", "EC2 Instance-terminate Lifecycle Action"): _parse_lifecycle_action,
    ("aws.autoscaling", "EC2 Instance Launch Successful"): _scaling_result_parser("in_service"),
    ("aws.autoscaling", "EC2 Instance Launch Unsuccessful"): _parse_launch_failure,
    ("aws.autoscaling", "EC2 Instance Terminate Successful"): _scaling_result_parser("left"),
    ("aws.autoscaling", "EC2 Instance Terminate Unsuccessful"): _parse_terminate_failure,
    **dict.fromkeys(
        (("aws.autoscaling", f"EC2 Auto Scaling Instance Refresh {word}") for word in _REFRESH_STATES),
        _parse_refresh,
    ),
    **dict.fromkeys(((NODE_SOURCE, detail_type) for detail_type in NODE_DETAIL_TYPES.values()), _parse_node_report),
    **dict.fromkeys(((COORDINATOR_SOURCE, kind) for kind in JOB_DETAIL_TYPES.values()), _parse_job_report),
}
