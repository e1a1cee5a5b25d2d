"""The events that EC2, Auto Scaling and EventBridge emit, in the formats that AWS documents.

- Tag Change on Resource: https://docs.aws.amazon.com/tag-editor/latest/userguide/monitor-tag-changes.html
- EC2 Instance State-change Notification, Spot and rebalance:
  https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/automating_with_eventbridge.html
- Auto Scaling: https://docs.aws.amazon.com/autoscaling/ec2/userguide/automating-ec2-auto-scaling-with-eventbridge.html

All functions are pure: the caller passes the account, region, time and event id in an `EventOrigin`.
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
class EventOrigin:
    """The account, region, time and id of an event. Every delivery of one event has the same id."""

    account: str  # number of the AWS account
    region: str
    at: float  # time of the event, in seconds since the Unix epoch
    event_id: str


def event_envelope(origin: EventOrigin, source: str, detail_type: str, resources: list[str], detail: Any) -> Event:
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


def instance_arn(origin: EventOrigin, instance_id: str) -> str:
    return f"arn:aws:ec2:{origin.region}:{origin.account}:instance/{instance_id}"


def tag_event(
    origin: EventOrigin, instance_id: str, changed_tag_keys: list[str], version: int, tags: dict[str, str]
) -> Event:
    """The event that tags of an instance have changed. `tags` has all tags of the instance after the change.
    `changed_tag_keys` also has the keys of deleted tags. `version` grows with each change of the instance's tags.
    """
    tag_detail = {
        "changed-tag-keys": changed_tag_keys,
        "service": "ec2",
        "resource-type": "instance",
        "version": version,
        "version-timestamp": str(int(origin.at * 1000)),
        "tags": tags,
    }
    return event_envelope(origin, "aws.tag", "Tag Change on Resource", [instance_arn(origin, instance_id)], tag_detail)


def state_change(origin: EventOrigin, instance_id: str, state: str) -> Event:
    event_detail = {"instance-id": instance_id, "state": state}
    return event_envelope(
        origin, "aws.ec2", "EC2 Instance State-change Notification", [instance_arn(origin, instance_id)], event_detail
    )


def spot_interruption(origin: EventOrigin, instance_id: str, action: str) -> Event:
    event_detail = {"instance-id": instance_id, "instance-action": action}
    return event_envelope(
        origin, "aws.ec2", "EC2 Spot Instance Interruption Warning", [instance_arn(origin, instance_id)], event_detail
    )


def rebalance_recommendation(origin: EventOrigin, instance_id: str) -> Event:
    event_detail = {"instance-id": instance_id}
    return event_envelope(
        origin, "aws.ec2", "EC2 Instance Rebalance Recommendation", [instance_arn(origin, instance_id)], event_detail
    )


def lifecycle_event(
    origin: EventOrigin, group_arn: str, group: str, hook: str, token: str, instance_id: str, transition: Transition
) -> Event:
    launch_or_terminate = "launch" if transition == LAUNCHING else "terminate"
    origin_and_destination = ("EC2", "AutoScalingGroup") if transition == LAUNCHING else ("AutoScalingGroup", "EC2")
    event_detail = {
        "LifecycleActionToken": token,
        "AutoScalingGroupName": group,
        "LifecycleHookName": hook,
        "EC2InstanceId": instance_id,
        "LifecycleTransition": transition,
        "Origin": origin_and_destination[0],
        "Destination": origin_and_destination[1],
    }
    return event_envelope(
        origin, "aws.autoscaling", f"EC2 Instance-{launch_or_terminate} Lifecycle Action", [group_arn], event_detail
    )


def test_notification(origin: EventOrigin, group_arn: str, group: str, transition: Transition) -> Event:
    """The test event that Auto Scaling sends for a new hook. The event's detail does not name the hook's transition
    (https://docs.aws.amazon.com/autoscaling/ec2/userguide/prepare-for-lifecycle-notifications.html).
    """
    launch_or_terminate = "launch" if transition == LAUNCHING else "terminate"
    event_detail = {
        "AccountId": origin.account,
        "RequestId": origin.event_id,
        "AutoScalingGroupARN": group_arn,
        "AutoScalingGroupName": group,
        "Service": "AWS Auto Scaling",
        "Event": "autoscaling:TEST_NOTIFICATION",
        "Time": timestamp(origin.at),
    }
    return event_envelope(
        origin, "aws.autoscaling", f"EC2 Instance-{launch_or_terminate} Lifecycle Action", [group_arn], event_detail
    )


def activity_event(
    origin: EventOrigin,
    group_arn: str,
    group: str,
    instance_id: str,
    activity: Literal["Launch", "Terminate"],
    *,
    ok: bool,
    zone: str,
    message: str = "",
) -> Event:
    """The event that a launch or a termination in a group has succeeded or failed, such as `EC2 Instance Launch
    Successful`. If a launch failed before an instance was created, `instance_id` is "".
    """
    activity_text = "Launching a new EC2 instance" if activity == "Launch" else "Terminating EC2 instance"
    event_detail = {
        "StatusCode": "InProgress" if ok else "Failed",
        "Description": f"{activity_text}: {instance_id}",
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
    return event_envelope(
        origin,
        "aws.autoscaling",
        f"EC2 Instance {activity} {'Successful' if ok else 'Unsuccessful'}",
        resources,
        event_detail,
    )


def scheduled_event(origin: EventOrigin, rule_arn: str) -> Event:
    return event_envelope(origin, "aws.events", "Scheduled Event", [rule_arn], {})
