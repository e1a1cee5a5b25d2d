"""From EventBridge payloads to facts: one table, keyed by (source, detail-type). What is not in it is a no-op that is counted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from controller.contract import (
    BASE_TAG,
    COORDINATOR_SOURCE,
    INSTANCE_ID,
    JOB_DETAIL_TYPES,
    NODE_DETAIL_TYPES,
    NODE_SOURCE,
    NODE_TYPE_TAG,
    OWNER_TAG,
    STATUS_TAG,
    JobReport,
    NodeReport,
)
from controller.facts import GroupEvent, Hook, Named, NodeFacts, Notice, Phase, Preparation, StateEvent, TagsEvent
from controller.groups import GroupFacts, LaunchFailure
from controller.instance_identity import Keys, Verdict, judge
from controller.job import JobFacts
from controller.payloads import (
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
from controller.view import GROUP_TAG

NOTICE_SECONDS = 120.0  # a Spot machine is taken two minutes after its notice, and a rebalance recommendation may be followed by one at once
_KEPT_TAGS = (OWNER_TAG, BASE_TAG, NODE_TYPE_TAG, GROUP_TAG)


@dataclass(frozen=True)
class Dropped:
    """An event that leads to no facts: `ignored` on purpose, or `quarantined` because it cannot be what it says it is."""

    outcome: Literal["ignored", "quarantined"]
    reason: str
    instance: str = ""


@dataclass(frozen=True)
class Several:
    """One event about several instances: each item is read and written on its own."""

    nodes: tuple[NodeFacts, ...]


Observation = NodeFacts | JobFacts | GroupFacts | Several | Dropped


def observe(event: Mapping[str, Any], suffix: str, keys: Keys = ()) -> Observation:
    """The facts an event tells. Never raises on any JSON object: a payload that does not parse is quarantined with the fields that are wrong.

    With `keys` a node's report must prove that it is the instance's own.
    """
    try:
        envelope = Envelope.model_validate(event)
        handler = _TABLE.get((envelope.source, envelope.detail_type))
        if handler is None:
            return Dropped("ignored", f"no handler for {envelope.detail_type!r} of {envelope.source!r}")
        if keys and envelope.source == NODE_SOURCE and (doubt := _doubt(envelope, keys)):
            return doubt
        return handler(envelope, suffix)
    except ValidationError as error:
        return Dropped("quarantined", _complaint(error))
    except (ValueError, TypeError, OverflowError) as error:
        return Dropped("quarantined", str(error))


def kept_tags(tags: Mapping[str, str], suffix: str) -> dict[str, str]:
    """The tags that decisions read; the others are not ours to store."""
    return {key: value for key, value in tags.items() if key in _KEPT_TAGS or key.endswith(suffix)}


def read_tags(tags: Mapping[str, str], suffix: str) -> dict[str, str]:
    """As `kept_tags`, with the status tag: what a read found there shows whether the mirror must be mended."""
    kept = kept_tags(tags, suffix)
    return {**kept, STATUS_TAG: tags[STATUS_TAG]} if STATUS_TAG in tags else kept


def named_by(tags: Mapping[str, str], changed: list[str], suffix: str) -> str | None:
    """The cluster that the tags speak of: the owner, else the elastic tag that is there, else the one that was just removed."""
    if OWNER_TAG in tags:
        return tags[OWNER_TAG]
    elastic = sorted((key not in changed, key) for key in tags if key.endswith(suffix))
    keys = [key for _, key in elastic] or sorted(key for key in changed if key.endswith(suffix))
    return keys[0].removesuffix(suffix) or None if keys else None


def _complaint(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(str(part) for part in entry['loc']) or 'event'}: {entry['msg']}" for entry in error.errors())


def _tag_change(envelope: Envelope, suffix: str) -> Observation:
    change = TagChange.model_validate(envelope.detail)
    if (change.service, change.resource_type) != ("ec2", "instance"):
        return Dropped("ignored", f"tags of {change.service} {change.resource_type}, not of an EC2 instance")
    instance = envelope.resources[0].rpartition("instance/")[2] if envelope.resources else ""
    if not re.fullmatch(INSTANCE_ID, instance):
        return Dropped("quarantined", f"{instance!r} is no instance id", instance)
    if not any(key.endswith(suffix) for key in change.changed_tag_keys):
        return Dropped("ignored", "no elastic tag changed", instance)
    at = change.version_timestamp / 1000 if change.version_timestamp is not None else envelope.time
    cluster = named_by(change.tags, change.changed_tag_keys, suffix)
    return NodeFacts(
        instance=instance,
        named=Named(at=at, cluster=cluster) if cluster else None,
        tags_event=TagsEvent(version=change.version, at=at, tags=kept_tags(change.tags, suffix)),
    )


def _state_change(envelope: Envelope, suffix: str) -> Observation:
    change = StateChange.model_validate(envelope.detail)
    return NodeFacts(
        instance=change.instance,
        state_event=StateEvent(at=envelope.time, state=change.state),
        terminated=change.state == "terminated",
        started_at=envelope.time if change.state == "pending" else 0.0,
    )


def _interruption(kind: str) -> Callable[[Envelope, str], Observation]:
    def observed(envelope: Envelope, suffix: str) -> Observation:
        told = Interruption.model_validate(envelope.detail)
        warning = 0.0 if told.action == "hibernate" else NOTICE_SECONDS  # hibernation begins with its notice
        return NodeFacts(instance=told.instance, notices=(Notice(kind=kind, deadline=envelope.time + warning),))

    return observed


def _capacity_interruption(envelope: Envelope, suffix: str) -> Observation:
    told = CapacityInterruption.model_validate(envelope.detail)
    deadline = told.ends if told.ends is not None else envelope.time + NOTICE_SECONDS
    return NodeFacts(instance=told.instance, notices=(Notice(kind="capacity", deadline=deadline),))


def _capacity_change(envelope: Envelope, suffix: str) -> Observation:
    """No facts: reservations are read anew each time, and the event only says that it is time to."""
    change = CapacityChange.model_validate(envelope.detail)
    return Dropped("ignored", f"{envelope.detail_type} {change.reservation}: the reserved pool reads reservations itself")


def _lifecycle_action(envelope: Envelope, suffix: str) -> Observation:
    action = LifecycleAction.model_validate(envelope.detail)
    if "autoscaling:TEST_NOTIFICATION" in (action.event, action.transition):
        return Dropped("ignored", "a test notification")
    if not re.fullmatch(INSTANCE_ID, action.instance):
        return Dropped("quarantined", f"{action.instance!r} is no instance id", action.instance)
    if not action.group or not action.hook:
        return Dropped("quarantined", "a lifecycle action without group or hook", action.instance)
    launching = action.transition == "autoscaling:EC2_INSTANCE_LAUNCHING"
    warm = action.destination == "WarmPool"
    phase: Phase = ("warm" if warm else "launching") if launching else "terminating"
    hook = Hook(
        at=envelope.time,
        group=action.group,
        hook=action.hook,
        transition="launch" if launching else "terminate",
        token=action.token or None,
        warm=warm,
    )
    return NodeFacts(
        instance=action.instance,
        group_event=GroupEvent(at=envelope.time, group=action.group, phase=phase),
        hooks={action.token or f"{action.hook}@{envelope.time:.0f}": hook},
    )


def _scaling_result(phase: Phase) -> Callable[[Envelope, str], Observation]:
    def observed(envelope: Envelope, suffix: str) -> Observation:
        result = ScalingResult.model_validate(envelope.detail)
        if not re.fullmatch(INSTANCE_ID, result.instance):
            return Dropped("quarantined", f"{result.instance!r} is no instance id", result.instance)
        seen: Phase = "warm" if result.destination == "WarmPool" else phase
        return NodeFacts(instance=result.instance, group_event=GroupEvent(at=envelope.time, group=result.group, phase=seen))

    return observed


def _launch_failed(envelope: Envelope, suffix: str) -> Observation:
    """An instance that we abandoned ourselves fails too: that says nothing of AWS's capacity."""
    result = ScalingResult.model_validate(envelope.detail)
    message = (result.message or "").strip()
    if "lifecycle action" in message.lower():
        return Dropped("ignored", f"an instance of group {result.group} was abandoned: {message}", result.instance)
    return GroupFacts(group=result.group, failed=LaunchFailure(at=envelope.time, message=message[:1000]))


def _instance_refresh(envelope: Envelope, suffix: str) -> Observation:
    refresh = InstanceRefresh.model_validate(envelope.detail)
    return Dropped("ignored", f"group {refresh.group}: its members tell what the refresh does")


def _health(envelope: Envelope, suffix: str) -> Observation:
    change = HealthChange.model_validate(envelope.detail)
    if change.service != "EC2" or change.category != "scheduledChange":
        return Dropped("ignored", f"{change.code or 'an event'} of {change.service} is no scheduled change of EC2")
    affected = [entity for entity in change.entities if re.fullmatch(INSTANCE_ID, entity.instance)]
    if not affected:
        return Dropped("ignored", f"{change.code or 'a scheduled change'} names no instance")
    if change.starts is None:
        return Dropped("quarantined", "startTime: a scheduled change without its time")
    return Several(tuple(_scheduled(change, entity, change.starts, envelope.time) for entity in affected))


def _scheduled(change: HealthChange, entity: HealthEntity, starts: float, told_at: float) -> NodeFacts:
    over = (change.status or "").lower() == "closed" or (entity.status or "").upper() == "RESOLVED"
    said_at = change.updated if change.updated is not None else told_at
    notice = Notice(kind="health", deadline=starts, ref=change.arn, said_at=said_at, closed=over)
    return NodeFacts(instance=entity.instance, notices=(notice,))


def _terminate_failed(envelope: Envelope, suffix: str) -> Observation:
    result = ScalingResult.model_validate(envelope.detail)
    return Dropped("ignored", f"group {result.group} could not terminate an instance and will try again: {result.message}", result.instance)


def _doubt(envelope: Envelope, keys: Keys) -> Dropped | None:
    report = NodeReport.model_validate(envelope.detail)
    verdict = judge(report.identity, report.instance_id, report.private_ip, keys, envelope.account)
    return None if verdict is Verdict.GENUINE else Dropped("quarantined", f"the report is refused: {verdict.value}", report.instance_id)


def _node_report(envelope: Envelope, suffix: str) -> Observation:
    report = NodeReport.model_validate(envelope.detail)
    named = Named(at=report.at, cluster=report.cluster)
    if report.outcome == "interrupted":
        deadline = report.deadline if report.deadline is not None else report.at + NOTICE_SECONDS
        return NodeFacts(instance=report.instance_id, named=named, notices=(Notice(kind="node", deadline=deadline),))
    preparation = Preparation(
        attempt=report.attempt, at=report.at, outcome=report.outcome, reason=report.reason.strip(), private_ip=report.private_ip
    )
    return NodeFacts(instance=report.instance_id, named=named, preparation=preparation)


def _job_report(envelope: Envelope, suffix: str) -> Observation:
    return JobFacts(report=JobReport.model_validate(envelope.detail), heard_at=envelope.time)


_REFRESH_STATES = ("Started", "Checkpoint Reached", "Succeeded", "Cancelled", "Failed", "Rollback Started", "Rollback Succeeded", "Rollback Failed")

CAPACITY_WORDS = ("Scheduled", "Active", "Delayed", "Unsupported", "Failed", "Expired", "Cancelled", "Interruptible Reclamation Complete")
CAPACITY_CHANGES = (  # AWS's own pages spell the events of Capacity Blocks in two ways
    *(f"EC2 Capacity Reservation {word}" for word in CAPACITY_WORDS),
    *(f"Capacity Block {word}" for word in ("Delivered", "Reservation Delivered", "Expiration Warning", "Reservation Expiration Warning")),
)
CAPACITY_INTERRUPTIONS = (
    "EC2 Capacity Reservation Instance Interruption Warning",
    "EC2 Interruptible Capacity Reservation Instance Interruption Warning",
)

_TABLE: Mapping[tuple[str, str], Callable[[Envelope, str], Observation]] = {
    ("aws.tag", "Tag Change on Resource"): _tag_change,
    ("aws.ec2", "EC2 Instance State-change Notification"): _state_change,
    ("aws.ec2", "EC2 Spot Instance Interruption Warning"): _interruption("spot"),
    ("aws.ec2", "EC2 Instance Rebalance Recommendation"): _interruption("rebalance"),
    ("aws.health", "AWS Health Event"): _health,
    **dict.fromkeys((("aws.ec2", kind) for kind in CAPACITY_INTERRUPTIONS), _capacity_interruption),
    **dict.fromkeys((("aws.ec2", kind) for kind in CAPACITY_CHANGES), _capacity_change),
    ("aws.autoscaling", "EC2 Instance-launch Lifecycle Action"): _lifecycle_action,
    ("aws.autoscaling", "EC2 Instance-terminate Lifecycle Action"): _lifecycle_action,
    ("aws.autoscaling", "EC2 Instance Launch Successful"): _scaling_result("in_service"),
    ("aws.autoscaling", "EC2 Instance Launch Unsuccessful"): _launch_failed,
    ("aws.autoscaling", "EC2 Instance Terminate Successful"): _scaling_result("left"),
    ("aws.autoscaling", "EC2 Instance Terminate Unsuccessful"): _terminate_failed,
    **dict.fromkeys((("aws.autoscaling", f"EC2 Auto Scaling Instance Refresh {word}") for word in _REFRESH_STATES), _instance_refresh),
    **dict.fromkeys(((NODE_SOURCE, kind) for kind in NODE_DETAIL_TYPES.values()), _node_report),
    **dict.fromkeys(((COORDINATOR_SOURCE, kind) for kind in JOB_DETAIL_TYPES.values()), _job_report),
}
