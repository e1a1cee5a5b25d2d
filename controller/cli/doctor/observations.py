"""The readings of AWS that `dyntrain doctor` judges. A failed reading is an `Unread` with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Unread:  # a failed reading of AWS
    """A failed reading of AWS, with the reason of the failure."""

    why: str  # the reason of the failure


@dataclass(frozen=True)
class StackSeen:  # facts read about a CloudFormation stack
    """What the doctor has read about a CloudFormation stack."""

    status: str  # of the stack, such as CREATE_COMPLETE
    parameters: Mapping[str, str] = field(default_factory=dict)  # values, by name of the parameter
    failed: Mapping[str, str] = field(default_factory=dict)  # reasons, by resource whose last change failed
    resources: Mapping[str, str] = field(default_factory=dict)  # physical names, by logical name
    alarms: tuple[str, ...] = ()  # names of the stack's CloudWatch alarms


@dataclass(frozen=True)
class GroupSeen:  # facts read about an Auto Scaling group
    """What the doctor has read about an Auto Scaling group. The group's sizes are numbers of instances."""

    minimum: int  # least number of instances
    maximum: int  # greatest number of instances
    desired: int  # desired capacity, in instances
    in_service: int  # number of instances in service
    tags: Mapping[str, str]  # values, by key
    hooks: frozenset[str]  # lifecycle transitions that have a hook
    types: frozenset[str] = frozenset()  # instance types of its instances and of its launch template's overrides
    abandons: bool = False  # a launch hook without an answer ends the instance
    handed_on: frozenset[str] = frozenset()  # keys of the tags that the group gives its instances


@dataclass(frozen=True)
class TemplateSeen:  # facts read about a launch template
    """What the doctor has read about a launch template."""

    instance_tags: Mapping[str, str]  # values, by key
    image: str  # id of the AMI, or "" if the template names no image
    volumes: Mapping[str, int] = field(default_factory=dict)  # sizes in GiB, by device


@dataclass(frozen=True)
class ImageSeen:  # facts read about an AMI
    """What the doctor has read about an AMI. A volume made from the image cannot be smaller than the image's volume."""

    state: str  # of the AMI, such as available
    volumes: Mapping[str, int] = field(default_factory=dict)  # sizes in GiB, by device


@dataclass(frozen=True)
class Right:  # an IAM permission
    """An IAM permission that a role or user needs."""

    action: str  # such as ec2:DescribeInstances
    resource: str = "*"  # ARN of the resource
    context: Mapping[str, str] = field(default_factory=dict)  # IAM condition keys of the call, with values


@dataclass(frozen=True)
class ClusterSeen:  # facts read about a cluster
    """What the doctor has read about a cluster. A field other than `wheel` is None if the described object does not
    exist.
    """

    parameters: Mapping[str, str] | Unread  # values, by the last part of the parameter's name
    stack: StackSeen | Unread | None  # the cluster's stack
    groups: Mapping[str, GroupSeen] | Unread  # Auto Scaling groups, by name
    template: TemplateSeen | Unread | None  # launch template
    image: ImageSeen | Unread | None  # AMI
    wheel: bool | Unread | None  # whether the wheel exists in S3; None if the stack names no S3 address
    denied: tuple[str, ...] | Unread  # actions that the nodes' roles may not do


@dataclass(frozen=True)
class Readings:  # of AWS
    """All readings of AWS that `dyntrain doctor` judges."""

    region: str | Unread  # name of the AWS region
    caller: str | Unread  # ARN of the person's IAM identity
    stages: Mapping[str, str] | Unread  # values of all parameters below the path `STAGES`
    wanted_stage: str | None  # name of the stage that the user chose
    stack: StackSeen | Unread | None  # the controller's stack
    table: str | Unread | None  # status of the facts table
    alarms: Mapping[str, str] | Unread  # descriptions of the raised alarms, by name
    denied: tuple[str, ...] | Unread  # actions that the caller may not do
    clusters: Mapping[str, ClusterSeen] | Unread  # by name
