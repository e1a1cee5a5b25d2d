"""The doctor's readings of AWS. A failed reading is an `Unread` with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Unread:
    """A reading that failed, with the reason."""

    why: str


@dataclass(frozen=True)
class StackSeen:
    """A CloudFormation stack. `failed`: resources whose last change failed, with CloudFormation's reason. `resources`:
    physical names by logical names. `alarms`: the names of the stack's alarms.
    """

    status: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupSeen:
    """An Auto Scaling group. `types`: types of its instances and of its template's overrides. `abandons`: a launch hook
    without an answer ends the instance. `handed_on`: keys of tags that the group gives its instances.
    """

    minimum: int
    maximum: int
    desired: int
    in_service: int
    tags: Mapping[str, str]
    hooks: frozenset[str]
    types: frozenset[str] = frozenset()
    abandons: bool = False
    handed_on: frozenset[str] = frozenset()


@dataclass(frozen=True)
class TemplateSeen:
    """A launch template. `image` "": the template names no image. `volumes`: GiB by device."""

    instance_tags: Mapping[str, str]
    image: str
    volumes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ImageSeen:
    """An image. `volumes`: GiB by device; a volume made from it cannot be smaller."""

    state: str
    volumes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Right:
    """A permission that a role or user needs. `context`: further keys and values of the request."""

    action: str
    resource: str = "*"
    context: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterSeen:
    """A cluster's readings. `parameters`: values by the last part of the name. None: the object does not exist; for
    `wheel`: the wheel is not in S3.
    """

    parameters: Mapping[str, str] | Unread
    stack: StackSeen | Unread | None
    groups: Mapping[str, GroupSeen] | Unread
    template: TemplateSeen | Unread | None
    image: ImageSeen | Unread | None
    wheel: bool | Unread | None
    denied: tuple[str, ...] | Unread


@dataclass(frozen=True)
class Readings:
    """All readings. `stages`: all parameters below `STAGES`; `stack`: the controller's stack;
    `table`: status of the facts table; `denied`: actions that the caller may not do.
    """

    region: str | Unread
    caller: str | Unread
    stages: Mapping[str, str] | Unread
    wanted_stage: str | None
    stack: StackSeen | Unread | None
    table: str | Unread | None
    alarms: Mapping[str, str] | Unread
    denied: tuple[str, ...] | Unread
    clusters: Mapping[str, ClusterSeen] | Unread
