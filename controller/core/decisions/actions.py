"""The things the controller does to AWS, as data. Each is safe to repeat.

What takes effect on a node is remembered in its facts (`acknowledgement`), a group's capacity in the group's own, the
target in the cluster's membership; what the reserved pool does shows in the next reading of its instances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from dyntrain.controller.contract.messages import Status
from dyntrain.controller.core.known.acks import NO_HEARTBEAT, NONE, Acks, Announced, Answered, Done, Ended
from dyntrain.controller.core.views.target import Membership


@dataclass(frozen=True)
class PublishTarget:
    """Put the cluster's target where the coordinator reads it."""

    membership: Membership


@dataclass(frozen=True)
class SetDesiredCapacity:
    """`detail` is what it answers, in AWS's words."""

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
    """`gone`: the instances are terminated, and EC2 may have taken their tags away already; then there is nothing left
    to do.
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
    """`decrement`: without it the group launches another one in its place. `closes`: why, for a base node of a cluster
    that is closed; "" for others.
    """

    instance: str
    group: str
    decrement: bool
    closes: str = ""


@dataclass(frozen=True)
class Terminate:
    """`closes` as above."""

    instances: tuple[str, ...]
    closes: str = ""


@dataclass(frozen=True)
class SuspendReplacement:
    """Keep the group from replacing members that do not run, for those of them that are about to be stopped."""

    instances: tuple[str, ...]
    group: str


@dataclass(frozen=True)
class ResumeReplacement:
    """Take that back. `instances` are all those for whose sake it was done."""

    instances: tuple[str, ...]
    group: str


@dataclass(frozen=True)
class HoldLaunches:
    """Keep the group from launching, whatever its desired capacity. What runs stays; what is ended is not replaced."""

    group: str
    why: str


@dataclass(frozen=True)
class ReleaseLaunches:
    """Take that back: the group launches what it lacks."""

    group: str
    why: str


@dataclass(frozen=True)
class StopBase:
    """Base nodes of a cluster that is closed; `closes` says why."""

    instances: tuple[str, ...]
    closes: str


@dataclass(frozen=True)
class StartInstances:
    """Of the reserved pool, like the next three."""

    instances: tuple[str, ...]


@dataclass(frozen=True)
class StopInstances:
    """Only what the pool started itself, and after the job has let it go."""

    instances: tuple[str, ...]


@dataclass(frozen=True)
class TagElastic:
    """Ask that the instances join: what a person does by hand."""

    instances: tuple[str, ...]
    key: str


@dataclass(frozen=True)
class UntagElastic:
    """Ask that they leave."""

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
    """By what the facts of each of its instances remember that the action took effect."""
    match action:
        case StampOwner():
            return Acks(stamps={action.cluster: Done(at=at)})
        case SetStatusTag():
            return Acks(mirror=Announced(at=at, value=action.status))
        case Protect():
            return Acks(protections={action.group: Done(at=at)})
        case CompleteLifecycle():
            return Acks(answers={action.key: Answered(at=at, result=action.result)})
        case HeartbeatLifecycle():
            return Acks(heartbeats={action.key: Done(at=at)})
        case TerminateInGroup():
            ended = Ended(at=at, group=action.group, lowered=action.decrement)
            return Acks(terminate=ended, closed=_closed(action.closes, at))
        case Terminate():
            return Acks(terminate=Ended(at=at), closed=_closed(action.closes, at))
        case SuspendReplacement():
            return Acks(suspended={action.group: Done(at=at)})
        case ResumeReplacement():
            return Acks(resumed={action.group: Done(at=at)})
        case StopBase():
            return Acks(closed=_closed(action.closes, at))
        case PublishTarget() | SetDesiredCapacity() | HoldLaunches() | ReleaseLaunches():
            return NONE
        case StartInstances() | StopInstances() | TagElastic() | UntagElastic():
            return NONE
        case _:
            assert_never(action)


def _closed(why: str, at: float) -> Announced | None:
    return Announced(at=at, value=why) if why else None


def overdue(action: LifecycleAnswer, at: float) -> Acks:
    """The lifecycle action was over already: there is nothing left to answer or to keep alive."""
    return Acks(answers={action.key: Answered(at=at, result="stale")})


def refusal(action: Action, problem: str, at: float) -> Acks:
    """What is remembered of AWS's no, so that it is not asked for again at once."""
    match action:
        case SetStatusTag(gone=True):  # the tag that IAM goes by is gone too
            return acknowledgement(action, at)
        case HeartbeatLifecycle():  # no heartbeat any more: but the hook may still be answered, once there is what to
            return Acks(answers={action.key: Answered(at=at, result=NO_HEARTBEAT)})
        case TerminateInGroup() | SuspendReplacement() | StopBase():
            return Acks(refused=Announced(at=at, value=problem))
        case _:
            return NONE
