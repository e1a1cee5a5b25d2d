"""The things the controller does to AWS, as data. Each is safe to repeat, and is remembered in the node's facts once its effect was seen.

Acknowledgement keys: `mirror` (value: the status written), `stamp:<cluster>`, `complete:<hook key>` (value: result), `heartbeat:<hook key>`,
`terminate`, `protect:<group>`; besides `status` (the last derived status and reason), `refused` (why a group would not let a member go),
`unseen` (how often in a row EC2 did not show it), `doubt` (a read that waits for a second one) and `alarm:<metric>` (told once for a status).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from controller.contract import Status
from controller.target import Membership


@dataclass(frozen=True)
class PublishTarget:
    """Put the cluster's target where the coordinator reads it."""

    membership: Membership


@dataclass(frozen=True)
class StampOwner:
    """Set the ownership tag, without which nothing may be terminated."""

    instances: tuple[str, ...]
    cluster: str


@dataclass(frozen=True)
class SetStatusTag:
    """`gone`: the instances are terminated, and EC2 may have taken their tags away already; then there is nothing left to do."""

    instances: tuple[str, ...]
    status: Status
    gone: bool = False


@dataclass(frozen=True)
class Protect:
    """Protect members of a group from scale-in."""

    instances: tuple[str, ...]
    group: str


@dataclass(frozen=True)
class CompleteLifecycle:
    """`token` None: answer by instance id."""

    instance: str
    key: str
    group: str
    hook: str
    token: str | None
    result: Literal["CONTINUE", "ABANDON"]


@dataclass(frozen=True)
class HeartbeatLifecycle:
    instance: str
    key: str
    group: str
    hook: str
    token: str | None


@dataclass(frozen=True)
class TerminateInGroup:
    """With decrement: otherwise the group would replace it."""

    instance: str
    group: str


@dataclass(frozen=True)
class Terminate:
    instances: tuple[str, ...]


@dataclass(frozen=True)
class SetDesiredCapacity:
    """What it answers is remembered in the group's own facts, before and after."""

    group: str
    desired: int
    why: str


NodeAction = StampOwner | SetStatusTag | Protect | CompleteLifecycle | HeartbeatLifecycle | TerminateInGroup | Terminate
Action = PublishTarget | SetDesiredCapacity | NodeAction


def instances(action: NodeAction) -> tuple[str, ...]:
    """The instances an action is about."""
    if isinstance(action, CompleteLifecycle | HeartbeatLifecycle | TerminateInGroup):
        return (action.instance,)
    return action.instances


def acknowledgement(action: NodeAction) -> tuple[str, str]:
    """Key and value by which the facts remember that the action took effect."""
    match action:
        case StampOwner():
            return f"stamp:{action.cluster}", ""
        case SetStatusTag():
            return "mirror", action.status
        case Protect():
            return f"protect:{action.group}", ""
        case CompleteLifecycle():
            return f"complete:{action.key}", action.result
        case HeartbeatLifecycle():
            return f"heartbeat:{action.key}", ""
        case TerminateInGroup() | Terminate():
            return "terminate", ""
