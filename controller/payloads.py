"""The event payloads, one tolerant model each: unknown fields pass, optional ones may be missing, numbers may come as text.

Every model names the page its schema is from. `events` turns them into facts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from controller.contract import InstanceId
from controller.facts import State


def _seconds(value: Any) -> Any:
    """ISO 8601 text to seconds since the epoch; a time without a zone is UTC."""
    if not isinstance(value, str):
        return value
    time = datetime.fromisoformat(value)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


Time = Annotated[float, BeforeValidator(_seconds)]


class Payload(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, allow_inf_nan=False)


class Envelope(Payload):
    """https://docs.aws.amazon.com/eventbridge/latest/ref/events-structure.html ; `detail` is validated by the model of its type."""

    source: str
    detail_type: str = Field(alias="detail-type")
    time: Time
    resources: list[str] = []
    detail: dict[str, Any] = {}


class TagChange(Payload):
    """https://docs.aws.amazon.com/tag-editor/latest/userguide/monitoring-tag-changes-on-resources-with-events.html"""

    service: str
    resource_type: str = Field(alias="resource-type")
    changed_tag_keys: list[str] = Field(alias="changed-tag-keys")
    tags: dict[str, str]
    version: float
    version_timestamp: float | None = Field(None, alias="version-timestamp", description="epoch milliseconds")


class StateChange(Payload):
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instance-state-changes.html"""

    instance: InstanceId = Field(validation_alias=AliasChoices("instance-id", "instance_id"))
    state: State


class Interruption(Payload):
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html and rebalance-recommendations.html there"""

    instance: InstanceId = Field(validation_alias=AliasChoices("instance-id", "instance_id"))
    action: str | None = Field(None, alias="instance-action")


class LifecycleAction(Payload):
    """https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-event-reference.html ; test notifications lack most of it"""

    event: str | None = Field(None, alias="Event")
    transition: Literal["autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING", "autoscaling:TEST_NOTIFICATION"] = Field(
        alias="LifecycleTransition"
    )
    instance: str = Field("", alias="EC2InstanceId")
    group: str = Field("", alias="AutoScalingGroupName")
    hook: str = Field("", alias="LifecycleHookName")
    token: str = Field("", alias="LifecycleActionToken")
    destination: str | None = Field(None, alias="Destination")


class ScalingResult(Payload):
    """https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-event-reference.html ; a failed launch has an empty instance id"""

    instance: str = Field("", alias="EC2InstanceId")
    group: str = Field(alias="AutoScalingGroupName")
    destination: str | None = Field(None, alias="Destination")
    message: str = Field("", alias="StatusMessage")
