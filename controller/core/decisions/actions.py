"""The controller's actions on AWS, as data. Each is safe to repeat.

What takes effect on a node is remembered in its facts (`acknowledgement`), a group's capacity in the group's facts, the
target in the cluster's membership; effects of the reserved pool show in the next reading of its instances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from dyntrain.controller.contract.messages import Status
from dyntrain.controller.core.records.acks import (
    NO_ACKS,
    NO_HEARTBEAT,
    Acks,
    Announcement,
    Effect,
    LifecycleResult,
    Termination,
)
from dyntrain.controller.core.views.target import Membership


@dataclass(frozen=True)
class PublishTarget:
    """Put the cluster's target where the coordinator reads it."""

    membership: Membership


@dataclass(frozen=True)
class SetDesiredCapacity:
    """Set a group's desired capacity. `detail` is the failure that it answers, in AWS's words."""

    group: str
    desired: int
    why: str
    detail: str = ""


@dataclass(frozen=True)
class StampOwner:
    """Set the ownership tag, without which nothing may be terminated."""

    instances: tuple[str, ...]
    cluster: str


@dataclass(frozen=True)
class SetStatusTag:
    """Set the status tag. `gone`: the instances are terminated, and EC2 may have removed their tags already; then
    nothing is left to do.
    """

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
    """Complete a lifecycle action. `token` None: answer by instance id."""

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
    """Terminate a member of a group. Without `decrement` the group launches a replacement. `closes`: why, for a base
    node of a cluster that is closed; "" for others.
    """

    instance: str
    group: str
    decrement: bool
    closes: str = ""


@dataclass(frozen=True)
class Terminate:
    """Terminate instances. `closes` as in `TerminateInGroup`."""

    instances: tuple[str, ...]
    closes: str = ""


@dataclass(frozen=True)
class SuspendReplacement:
    """Stop the group from replacing members that do not run, before some of them are stopped."""

    instances: tuple[str, ...]
    group: str


@dataclass(frozen=True)
class ResumeReplacement:
    """Undo SuspendReplacement. `instances` are all those for whose sake it was done."""

    instances: tuple[str, ...]
    group: str


@dataclass(frozen=True)
class HoldLaunches:
    """Stop the group from launching, whatever its desired capacity. Running members stay; ended ones are not
    replaced.
    """

    group: str
    why: str


@dataclass(frozen=True)
class ReleaseLaunches:
    """Undo HoldLaunches: the group launches what it lacks."""

    group: str
    why: str


@dataclass(frozen=True)
class StopBase:
    """Stop base nodes of a cluster that is closed; `closes` says why."""

    instances: tuple[str, ...]
    closes: str


@dataclass(frozen=True)
class StartInstances:
    """Start instances of the reserved pool."""

    instances: tuple[str, ...]


@dataclass(frozen=True)
class StopInstances:
    """Stop instances of the reserved pool: only those that it started, and only after the job has released them."""

    instances: tuple[str, ...]


@dataclass(frozen=True)
class TagElastic:
    """Ask that instances of the reserved pool join, by the tag that people set by hand."""

    instances: tuple[str, ...]
    key: str


@dataclass(frozen=True)
class UntagElastic:
    """Ask that instances of the reserved pool leave."""

    instances: tuple[str, ...]
    key: str


LifecycleAnswer = CompleteLifecycle | HeartbeatLifecycle
Ending = TerminateInGroup | Terminate | StopBase
NodeAction = StampOwner | SetStatusTag | Protect | LifecycleAnswer | Ending | SuspendReplacement | ResumeReplacement
PoolAction = StartInstances | StopInstances | TagElastic | UntagElastic
GroupAction = SetDesiredCapacity | HoldLaunches | ReleaseLaunches
Action = PublishTarget | GroupAction | NodeAction | PoolAction


def instances(action: Action) -> tuple[str, ...]:
    """The instances an action is about."""
    match action:
        case PublishTarget() | SetDesiredCapacity() | HoldLaunches() | ReleaseLaunches():
            return ()
        case CompleteLifecycle() | HeartbeatLifecycle() | TerminateInGroup():
            return (action.instance,)
        case _:
            return action.instances


def acknowledgement(action: Action, at: float) -> Acks:
    """The acknowledgement that the action took effect, for the facts of each of its instances."""
    match action:
        case StampOwner():
            return Acks(stamps={action.cluster: Effect(at=at)})
        case SetStatusTag():
            return Acks(mirror=Announcement(at=at, value=action.status))
        case Protect():
            return Acks(protections={action.group: Effect(at=at)})
        case CompleteLifecycle():
            return Acks(answers={action.key: LifecycleResult(at=at, result=action.result)})
        case HeartbeatLifecycle():
            return Acks(heartbeats={action.key: Effect(at=at)})
        case TerminateInGroup():
            termination = Termination(at=at, group=action.group, lowered=action.decrement)
            return Acks(terminate=termination, closed=_closed_ack(action.closes, at))
        case Terminate():
            return Acks(terminate=Termination(at=at), closed=_closed_ack(action.closes, at))
        case SuspendReplacement():
            return Acks(suspended={action.group: Effect(at=at)})
        case ResumeReplacement():
            return Acks(resumed={action.group: Effect(at=at)})
        case StopBase():
            return Acks(closed=_closed_ack(action.closes, at))
        case PublishTarget() | SetDesiredCapacity() | HoldLaunches() | ReleaseLaunches():
            return NO_ACKS
        case StartInstances() | StopInstances() | TagElastic() | UntagElastic():
            return NO_ACKS
        case _:
            assert_never(action)


def _closed_ack(why: str, at: float) -> Announcement | None:
    return Announcement(at=at, value=why) if why else None


def stale_answer(action: LifecycleAnswer, at: float) -> Acks:
    """The acknowledgement for a lifecycle action that no longer exists: it needs neither answer nor heartbeat."""
    return Acks(answers={action.key: LifecycleResult(at=at, result="stale")})


def refusal(action: Action, problem: str, at: float) -> Acks:
    """The acknowledgement that AWS refused the action, so that it is not repeated at once."""
    match action:
        case SetStatusTag(gone=True):  # the tag that IAM goes by is gone too
            return acknowledgement(action, at)
        case HeartbeatLifecycle():  # no heartbeat any more: but the hook may still be answered, once there is what to
            return Acks(answers={action.key: LifecycleResult(at=at, result=NO_HEARTBEAT)})
        case TerminateInGroup() | SuspendReplacement() | StopBase():
            return Acks(refused=Announcement(at=at, value=problem))
        case _:
            return NO_ACKS
