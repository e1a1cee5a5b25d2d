"""The events that EC2, Auto Scaling and EventBridge emit, in the formats that AWS documents.

- Tag Change on Resource: https://docs.aws.amazon.com/tag-editor/latest/userguide/monitor-tag-changes.html
- EC2 Instance State-change Notification, Spot and rebalance:
  https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/automating_with_eventbridge.html
- Auto Scaling: https://docs.aws.amazon.com/autoscaling/ec2/userguide/automating-ec2-auto-scaling-with-eventbridge.html

All functions are pure: the caller gives the account, region, time and event id in an `Origin`.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any, Literal

Event = dict[str, Any]
Transition = Literal["autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING"]

LAUNCHING: Transition = "autoscaling:EC2_INSTANCE_LAUNCHING"
TERMINATING: Transition = "autoscaling:EC2_INSTANCE_TERMINATING"


def timestamp(seconds: float) -> str:
    """The time as EventBridge writes it: ISO 8601 in UTC without a fraction."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Origin:
    """The account, region, time and id of an event. Each delivery of an event has the same id."""

    account: str
    region: str
    at: float
    event_id: str


def envelope(origin: Origin, source: str, detail_type: str, resources: list[str], detail: Any) -> Event:
    return {
        "version": "0",
        "id": origin.event_id,
        "detail-type": detail_type,
        "source": source,
        "account": origin.account,
        "time": timestamp(origin.at),
        "region": origin.region,
        "resources": resources,
        "detail": detail,
    }


def instance_arn(origin: Origin, instance_id: str) -> str:
    return f"arn:aws:ec2:{origin.region}:{origin.account}:instance/{instance_id}"


def tag_change(origin: Origin, instance_id: str, changed: list[str], version: int, tags: dict[str, str]) -> Event:
    """A tag change event. `tags` has all tags after the change. `changed` has the changed keys, also deleted keys.
    `version` grows with each change of the resource's tags.
    """
    detail = {
        "changed-tag-keys": changed,
        "service": "ec2",
        "resource-type": "instance",
        "version": version,
        "version-timestamp": str(int(origin.at * 1000)),
        "tags": tags,
    }
    return envelope(origin, "aws.tag", "Tag Change on Resource", [instance_arn(origin, instance_id)], detail)


def state_change(origin: Origin, instance_id: str, state: str) -> Event:
    detail = {"instance-id": instance_id, "state": state}
    return envelope(
        origin, "aws.ec2", "EC2 Instance State-change Notification", [instance_arn(origin, instance_id)], detail
    )


def spot_interruption(origin: Origin, instance_id: str, action: str) -> Event:
    detail = {"instance-id": instance_id, "instance-action": action}
    return envelope(
        origin, "aws.ec2", "EC2 Spot Instance Interruption Warning", [instance_arn(origin, instance_id)], detail
    )


def rebalance_recommendation(origin: Origin, instance_id: str) -> Event:
    detail = {"instance-id": instance_id}
    return envelope(
        origin, "aws.ec2", "EC2 Instance Rebalance Recommendation", [instance_arn(origin, instance_id)], detail
    )


def lifecycle_action(
    origin: Origin, group_arn: str, group: str, hook: str, token: str, instance_id: str, transition: Transition
) -> Event:
    word = "launch" if transition == LAUNCHING else "terminate"
    route = ("EC2", "AutoScalingGroup") if transition == LAUNCHING else ("AutoScalingGroup", "EC2")
    detail = {
        "LifecycleActionToken": token,
        "AutoScalingGroupName": group,
        "LifecycleHookName": hook,
        "EC2InstanceId": instance_id,
        "LifecycleTransition": transition,
        "Origin": route[0],
        "Destination": route[1],
    }
    return envelope(origin, "aws.autoscaling", f"EC2 Instance-{word} Lifecycle Action", [group_arn], detail)


def test_notification(origin: Origin, group_arn: str, group: str, transition: Transition) -> Event:
    """The test event that Auto Scaling sends for a new hook. The event's detail has no transition
    (https://docs.aws.amazon.com/autoscaling/ec2/userguide/prepare-for-lifecycle-notifications.html).
    """
    word = "launch" if transition == LAUNCHING else "terminate"
    detail = {
        "AccountId": origin.account,
        "RequestId": origin.event_id,
        "AutoScalingGroupARN": group_arn,
        "AutoScalingGroupName": group,
        "Service": "AWS Auto Scaling",
        "Event": "autoscaling:TEST_NOTIFICATION",
        "Time": timestamp(origin.at),
    }
    return envelope(origin, "aws.autoscaling", f"EC2 Instance-{word} Lifecycle Action", [group_arn], detail)


def activity_result(
    origin: Origin,
    group_arn: str,
    group: str,
    instance_id: str,
    activity: Literal["Launch", "Terminate"],
    *,
    ok: bool,
    zone: str,
    message: str = "",
) -> Event:
    """The event `EC2 Instance Launch Successful`, or `Unsuccessful`, or the same for `Terminate`. A failed launch
    without an instance has the `instance_id` "".
    """
    verb = "Launching a new EC2 instance" if activity == "Launch" else "Terminating EC2 instance"
    detail = {
        "StatusCode": "InProgress" if ok else "Failed",
        "Description": f"{verb}: {instance_id}",
        "AutoScalingGroupName": group,
        "ActivityId": origin.event_id,
        "Details": {"Availability Zone": zone},
        "RequestId": origin.event_id,
        "StatusMessage": message,
        "EndTime": timestamp(origin.at),
        "EC2InstanceId": instance_id,
        "StartTime": timestamp(origin.at),
        "Cause": f"At {timestamp(origin.at)} the group changed its capacity.",
    }
    resources = [group_arn] + ([instance_arn(origin, instance_id)] if instance_id else [])
    return envelope(
        origin,
        "aws.autoscaling",
        f"EC2 Instance {activity} {'Successful' if ok else 'Unsuccessful'}",
        resources,
        detail,
    )


def scheduled(origin: Origin, rule_arn: str) -> Event:
    return envelope(origin, "aws.events", "Scheduled Event", [rule_arn], {})
