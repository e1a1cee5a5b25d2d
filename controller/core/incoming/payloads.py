"""Models of the payloads of EventBridge events. The payload models ignore unknown fields, allow that optional fields
are missing or null, and accept numbers as text.

The docstring of each payload model contains the address of AWS's page about the payload. The module `events` turns the
payload models into facts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, Literal

from dyntrain.controller.contract.messages import InstanceId
from dyntrain.controller.core.records.facts import InstanceState
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, model_validator


def _parse_time(value: Any) -> Any:
    """Parse a time in the format ISO 8601 or RFC 1123 into seconds since the epoch. Only AWS Health uses RFC 1123. A
    time without a time zone is taken as UTC.
    """
    if not isinstance(value, str):
        return value
    parsed_time = parsedate_to_datetime(value) if value[-3:] == "GMT" else datetime.fromisoformat(value)
    return (parsed_time if parsed_time.tzinfo else parsed_time.replace(tzinfo=UTC)).timestamp()


def _without_nulls(tags: Any) -> Any:
    """The tags, with "" in place of a null value."""
    return {key: "" if value is None else value for key, value in tags.items()} if isinstance(tags, dict) else tags


def _instance_of_arn(value: Any) -> Any:
    is_instance_arn = isinstance(value, str) and value.startswith("arn:") and ":instance/" in value
    return value.rpartition("/")[2] if is_instance_arn else value


YEAR_10000 = 253_402_300_800.0  # seconds since the epoch
# a later time cannot be formatted, and would never have passed
Time = Annotated[float, BeforeValidator(_parse_time), Field(ge=0, lt=YEAR_10000)]


class Payload(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        return {key: field for key, field in value.items() if field is not None} if isinstance(value, dict) else value


class Envelope(Payload):
    """The fields that every EventBridge event has. The content of `detail` is validated later, by the model for the
    event's type.

    https://docs.aws.amazon.com/eventbridge/latest/ref/events-structure.html
    """

    source: str  # such as aws.ec2
    account: str = ""  # AWS account id
    detail_type: str = Field(alias="detail-type")
    time: Time
    resources: Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)] = []
    detail: dict[str, Any] = {}  # content of the event
    replay: str | None = Field(None, alias="replay-name", description="set when an archive is replayed")


class TagChange(Payload):
    """A change of an instance's tags.

    https://docs.aws.amazon.com/tag-editor/latest/userguide/monitoring-tag-changes-on-resources-with-events.html
    """

    service: str  # such as ec2
    resource_type: str = Field(alias="resource-type")
    changed_tag_keys: list[str] = Field(alias="changed-tag-keys")
    tags: Annotated[dict[str, str], BeforeValidator(_without_nulls)]
    version: float  # number of the tag change
    version_timestamp: Annotated[float | None, BeforeValidator(lambda value: value or None)] = Field(
        None, alias="version-timestamp", description="epoch milliseconds"
    )


class StateChange(Payload):
    """A change of an instance's state.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instance-state-changes.html
    """

    instance: InstanceId = Field(validation_alias=AliasChoices("instance-id", "instance_id"))
    state: InstanceState


class Interruption(Payload):
    """An event about a Spot interruption or a rebalance recommendation.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html
    """

    instance: InstanceId = Field(validation_alias=AliasChoices("instance-id", "instance_id"))
    action: str | None = Field(None, alias="instance-action")  # what EC2 will do: stop, terminate or hibernate


class CapacityInterruption(Interruption):
    """A notice that AWS takes an instance because its capacity reservation is interrupted. In this event the field
    `resources` is a string, not a list.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitor-interruptible-cr.html
    """

    ends: Time | None = Field(None, alias="instance-termination-time")  # when EC2 takes the instance


class CapacityChange(Payload):
    """A change of a capacity reservation or Capacity Block. The event about reclaimed interruptible capacity names the
    source reservation in place of the interruptible reservation (monitor-interruptible-cr.html).

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitor-fcr-state.html
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-monitor.html
    """

    reservation: str = Field(
        "",
        validation_alias=AliasChoices(
            "capacity-reservation-id", "capacity_reservation_id", "sourceCapacityReservationId"
        ),
    )
    state: str | None = None  # of the reservation
    end: str | None = Field(None, alias="end-date")  # when the reservation ends


class LifecycleAction(Payload):
    """An event about a lifecycle action that waits for completion. A test notification of Auto Scaling has the same
    type, but lacks most fields of a lifecycle action.

    https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-event-reference.html
    """

    event: str | None = Field(None, alias="Event")  # set in test notifications
    transition: Literal["autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING"] | None = Field(
        None, alias="LifecycleTransition"
    )
    instance: str = Field("", alias="EC2InstanceId")
    group: str = Field("", alias="AutoScalingGroupName")
    hook: str = Field("", alias="LifecycleHookName")
    token: str = Field("", alias="LifecycleActionToken")  # identifies the lifecycle action
    destination: str | None = Field(None, alias="Destination")  # where the instance goes, such as WarmPool


class ScalingResult(Payload):
    """The result of a launch or termination by an Auto Scaling group. If a launch failed, the instance id is empty.

    https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-event-reference.html
    """

    instance: str = Field("", alias="EC2InstanceId")
    group: str = Field(alias="AutoScalingGroupName")
    destination: str | None = Field(None, alias="Destination")  # where the instance goes, such as WarmPool
    message: str | None = Field(None, alias="StatusMessage")  # why the launch or termination failed


class InstanceRefresh(Payload):
    """An event about an instance refresh of an Auto Scaling group. The event itself is ignored, because the controller
    reads the effects of the refresh from the group's members.

    https://docs.aws.amazon.com/autoscaling/ec2/userguide/instance-refresh-eventbridge-events.html
    """

    group: str = Field(alias="AutoScalingGroupName")


class HealthEntity(Payload):
    """An entry of `affectedEntities` in an AWS Health event, identified by an instance id or an ARN. `status` is
    IMPAIRED, UNIMPAIRED, UNKNOWN, PENDING or RESOLVED.
    """

    instance: Annotated[str, BeforeValidator(_instance_of_arn)] = Field("", alias="entityValue")
    status: str | None = None  # such as IMPAIRED or RESOLVED


class HealthChange(Payload):
    """An event of AWS Health. `startTime` is the time at which a scheduled change, such as maintenance, begins.

    https://docs.aws.amazon.com/health/latest/ug/aws-health-events-eventbridge-schema.html
    """

    service: str  # such as EC2
    category: str = Field(alias="eventTypeCategory")
    code: str = Field("", alias="eventTypeCode")
    arn: str = Field("", alias="eventArn")  # of the event
    starts: Time | None = Field(None, alias="startTime")  # when a scheduled change begins
    updated: Time | None = Field(None, alias="lastUpdatedTime")
    status: str | None = Field(None, alias="statusCode")  # such as open or closed
    entities: list[HealthEntity] = Field([], alias="affectedEntities")  # the affected instances
