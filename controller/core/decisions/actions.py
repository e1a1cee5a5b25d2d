"""The controller's actions on AWS, each as a data class. Each action is safe to repeat.

The controller stores the effect of an action in the facts of the node, in the facts of the Auto Scaling group, or in
the cluster's membership. The effect of an action on the reserved pool is not stored, because the next reading of the
pool's instances shows the effect.
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
    """Write the cluster's target into the SSM parameter that the coordinator reads."""

    membership: Membership  # the target to publish


@dataclass(frozen=True)
class SetDesiredCapacity:
    """Set the desired capacity of an Auto Scaling group. `detail` is AWS's message about the failed launch that caused
    this action.
    """

    group: str  # the Auto Scaling group's name
    desired: int  # the new desired capacity
    why: str  # why the capacity changes
    detail: str = ""  # AWS's message about the failed launch


@dataclass(frozen=True)
class StampOwner:
    """Set the ownership tag on instances: the controller terminates only instances with this tag."""

    instances: tuple[str, ...]  # instance ids
    cluster: str  # the cluster that owns the instances, which becomes the tag's value


@dataclass(frozen=True)
class SetStatusTag:
    """Set the tag that shows a node's status. `gone` says that the instances are terminated. EC2 may have removed the
    tags of terminated instances, so a refusal by AWS to set the tag is treated as success.
    """

    instances: tuple[str, ...]  # instance ids
    status: Status  # the new value of the status tag
    gone: bool = False  # the instances are terminated


@dataclass(frozen=True)
class Protect:
    """Protect members of an Auto Scaling group from scale-in, that is, from termination by the group."""

    instances: tuple[str, ...]  # instance ids
    group: str  # the Auto Scaling group's name


@dataclass(frozen=True)
class CompleteLifecycle:
    """Complete an Auto Scaling lifecycle action. Without `token`, the instance id identifies the lifecycle action."""

    instance: str  # instance id
    key: str  # the key of the lifecycle action in the node's facts
    group: str  # the Auto Scaling group's name
    hook: str  # the lifecycle hook's name
    token: str | None  # the lifecycle action's token
    result: Literal["CONTINUE", "ABANDON"]  # the answer to Auto Scaling


@dataclass(frozen=True)
class HeartbeatLifecycle:
    instance: str  # instance id
    key: str  # the key of the lifecycle action in the node's facts
    group: str  # the Auto Scaling group's name
    hook: str  # the lifecycle hook's name
    token: str | None  # the lifecycle action's token


@dataclass(frozen=True)
class TerminateInGroup:
    """Terminate a member of an Auto Scaling group. If `decrement` is false, the group launches a replacement. For a
    base node of a closed cluster, `closes` is the reason for closing the cluster, and for every other instance "".
    """

    instance: str  # instance id
    group: str  # the Auto Scaling group's name
    decrement: bool  # also lower the group's desired capacity by one
    closes: str = ""  # why the cluster is closed


@dataclass(frozen=True)
class Terminate:
    """Terminate instances that are in no Auto Scaling group. The field `closes` has the same meaning as in
    `TerminateInGroup`.
    """

    instances: tuple[str, ...]  # instance ids
    closes: str = ""  # why the cluster is closed


@dataclass(frozen=True)
class SuspendReplacement:
    """Stop an Auto Scaling group from replacing its stopped members. The controller suspends the replacement before it
    stops members of the group.
    """

    instances: tuple[str, ...]  # instance ids
    group: str  # the Auto Scaling group's name


@dataclass(frozen=True)
class ResumeReplacement:
    """Let an Auto Scaling group replace its stopped members again. `instances` are the group members for which the
    replacement was suspended.
    """

    instances: tuple[str, ...]  # instance ids
    group: str  # the Auto Scaling group's name


@dataclass(frozen=True)
class HoldLaunches:
    """Stop an Auto Scaling group from launching instances, whatever its desired capacity. Running members of the group
    stay, but terminated members are not replaced.
    """

    group: str  # the Auto Scaling group's name
    why: str  # why the launches are stopped


@dataclass(frozen=True)
class ReleaseLaunches:
    """Undo the action HoldLaunches, so that the Auto Scaling group launches instances up to its desired capacity."""

    group: str  # the Auto Scaling group's name
    why: str  # why the launches are allowed again


@dataclass(frozen=True)
class StopBase:
    """Stop base nodes of a closed cluster. `closes` is the reason for closing the cluster."""

    instances: tuple[str, ...]  # instance ids
    closes: str  # why the cluster is closed


@dataclass(frozen=True)
class StartInstances:
    """Start instances of the reserved pool."""

    instances: tuple[str, ...]  # instance ids


@dataclass(frozen=True)
class StopInstances:
    """Stop instances of the reserved pool. The pool stops an instance only if the pool started the instance and the job
    has released the instance.
    """

    instances: tuple[str, ...]  # instance ids


@dataclass(frozen=True)
class TagElastic:
    """Ask instances of the reserved pool to join the cluster, by setting the elastic tag. Users can set the elastic tag
    by hand, too.
    """

    instances: tuple[str, ...]  # instance ids
    key: str  # the key of the elastic tag


@dataclass(frozen=True)
class UntagElastic:
    """Ask instances of the reserved pool to leave the cluster, by removing the elastic tag."""

    instances: tuple[str, ...]  # instance ids
    key: str  # the key of the elastic tag


LifecycleAnswer = CompleteLifecycle | HeartbeatLifecycle
Ending = TerminateInGroup | Terminate | StopBase  # every action that stops or terminates instances
NodeAction = StampOwner | SetStatusTag | Protect | LifecycleAnswer | Ending | SuspendReplacement | ResumeReplacement
PoolAction = StartInstances | StopInstances | TagElastic | UntagElastic
GroupAction = SetDesiredCapacity | HoldLaunches | ReleaseLaunches
Action = PublishTarget | GroupAction | NodeAction | PoolAction


def instances(action: Action) -> tuple[str, ...]:
    """The ids of the instances that the action concerns."""
    match action:
        case PublishTarget() | SetDesiredCapacity() | HoldLaunches() | ReleaseLaunches():
            return ()
        case CompleteLifecycle() | HeartbeatLifecycle() | TerminateInGroup():
            return (action.instance,)
        case _:
            return action.instances


def acks_of_effect(action: Action, at: float) -> Acks:
    """The record that the action took effect, to be stored with the facts of each instance that the action concerns."""
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
            return Acks(terminate=termination, closed=_closing_ack(action.closes, at))
        case Terminate():
            return Acks(terminate=Termination(at=at), closed=_closing_ack(action.closes, at))
        case SuspendReplacement():
            return Acks(suspended={action.group: Effect(at=at)})
        case ResumeReplacement():
            return Acks(resumed={action.group: Effect(at=at)})
        case StopBase():
            return Acks(closed=_closing_ack(action.closes, at))
        case PublishTarget() | SetDesiredCapacity() | HoldLaunches() | ReleaseLaunches():
            return NO_ACKS
        case StartInstances() | StopInstances() | TagElastic() | UntagElastic():
            return NO_ACKS
        case _:
            assert_never(action)


def _closing_ack(why: str, at: float) -> Announcement | None:
    return Announcement(at=at, value=why) if why else None


def acks_of_stale_action(action: LifecycleAnswer, at: float) -> Acks:
    """The record that a lifecycle action no longer exists, and so needs neither an answer nor a heartbeat."""
    return Acks(answers={action.key: LifecycleResult(at=at, result="stale")})


def acks_of_refusal(action: Action, problem: str, at: float) -> Acks:
    """The record that AWS refused the action, so that the controller waits before it repeats the action."""
    match action:
        case SetStatusTag(gone=True):  # IAM refuses because the ownership tag is gone, too
            return acks_of_effect(action, at)
        case HeartbeatLifecycle():  # no more heartbeats, but the lifecycle action can still be completed
            return Acks(answers={action.key: LifecycleResult(at=at, result=NO_HEARTBEAT)})
        case TerminateInGroup() | SuspendReplacement() | StopBase():
            return Acks(refused=Announcement(at=at, value=problem))
        case _:
            return NO_ACKS
