"""The doctor's readings, before it judges. A reading that failed is an `Unread`, which says why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Unread:
    why: str


@dataclass(frozen=True)
class StackSeen:
    """A CloudFormation stack. `failed`: resources whose last change did not succeed, with CloudFormation's reason.
    `resources`: physical names by logical ones. `alarms`: the names of its alarms.
    """

    status: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupSeen:
    """An Auto Scaling group. `types`: of its instances, and those that it may launch besides its launch template's.
    `abandons`: its launch hook ends a launch that nobody answers. `handed_on`: the keys of its tags that its instances
    get too.
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
    """A launch template. `image` "": it names none. `volumes`: GiB by device."""

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
    """An action that somebody must be allowed to do; `context` is what the request will carry besides."""

    action: str
    resource: str = "*"
    context: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterSeen:
    """A cluster's readings. `parameters` by their last part. A field of None does not exist. `wheel` None: it does not
    come from S3.
    """

    parameters: Mapping[str, str] | Unread
    stack: StackSeen | Unread | None
    groups: Mapping[str, GroupSeen] | Unread
    template: TemplateSeen | Unread | None
    image: ImageSeen | Unread | None
    wheel: bool | Unread | None
    denied: tuple[str, ...] | Unread


@dataclass(frozen=True)
class Seen:
    """All readings. `stages`: all parameters below `STAGES`. `stack` is the controller's; `table` its table's status.
    `denied` is what the caller may not do.
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
