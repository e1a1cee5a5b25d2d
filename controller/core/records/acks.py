"""The acknowledgements of a node: the controller's record of its own actions on the node and of its announcements about
the node.

Each kind of acknowledgement is a field of `Acks` and is merged separately, so that neither the order nor the repetition
of updates matters. The function `actions.acks_of_effect` makes the records of actions. The loop `converge` records
announcements, and the loop `resync` records failed and doubtful reads.
"""

from __future__ import annotations

from typing import Any, Literal

from dyntrain.controller.core.records.registers import Fact, latest, union
from pydantic import Field

# the results of a lifecycle action include `stale`, when the action had already ended
NO_HEARTBEAT = "refused"  # result: AWS refuses further heartbeats for the lifecycle action
Answer = Literal["CONTINUE", "ABANDON", "stale", "refused"]  # after `refused` the action still needs an answer


class Effect(Fact):
    """The record that an action took effect, with the time `at` when the controller saw the effect."""

    at: float  # when the controller saw the effect

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.at,)


class Announcement(Fact):
    """The record that the controller wrote or announced `value` at the time `at`."""

    at: float  # when the controller wrote or announced it
    value: str  # the text that was written or announced

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.at, self.value)


class Termination(Fact):
    """The record that the controller terminated the instance at the time `at`. `lowered` says whether the controller
    also lowered the desired capacity of the Auto Scaling group `group`.
    """

    at: float  # when the controller terminated the instance
    group: str = ""  # the Auto Scaling group; "": none
    lowered: bool = False  # also lowered the group's desired capacity

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.at, self.group, self.lowered)


class LifecycleResult(Fact):
    """The result of a lifecycle action that was completed, no longer exists, or accepts no more heartbeats."""

    at: float  # when the lifecycle action ended
    result: Answer  # how the lifecycle action ended

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.at, self.result)


class MissedReads(Fact):
    """The number of consecutive describe calls that did not show the instance, and the time `at` of the last of these
    calls.
    """

    at: float  # time of the last of the calls
    times: int  # number of consecutive calls

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.at, self.times)


class Doubt(Fact):
    """Whether a read that began at the time `at` is doubtful, because the read would remove this node together with
    most members of the cluster.
    """

    at: float  # when the read began
    lost: bool  # the read would remove the node

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.at, self.lost)


class Acks(Fact):
    """All acknowledgements of a node. Every field is empty at first, and merging an empty field changes nothing."""

    status: Announcement | None = Field(None, description="the last announced status and reason (`Standing.line`)")
    mirror: Announcement | None = Field(None, description="the status that was written into the tag")
    terminate: Termination | None = None  # when the controller terminated the node
    refused: Announcement | None = Field(None, description="why AWS refused to stop or terminate the node")
    unseen: MissedReads | None = None  # describe calls that did not show the node
    doubt: Doubt | None = None  # whether the last read is doubtful
    joined: dict[str, Effect] = Field({}, description="when the coordinator reported the node in the job, by cluster")
    stamps: dict[str, Effect] = Field({}, description="when the ownership tag was set, by cluster")
    answers: dict[str, LifecycleResult] = Field({}, description="results of lifecycle actions, by hook key")
    heartbeats: dict[str, Effect] = Field({}, description="the last heartbeat for a lifecycle action, by hook key")
    protections: dict[str, Effect] = Field({}, description="protection from scale-in, by group")
    alarms: dict[str, Announcement] = Field({}, description="the status for which an alarm was raised, by metric")
    billed: Announcement | None = Field(None, description="the node's last entry for the bill (`Metered.line`)")
    closed: Announcement | None = Field(None, description="why the base node of a closed cluster was stopped or ended")
    suspended: dict[str, Effect] = Field({}, description="when replacement was suspended for this node, by group")
    resumed: dict[str, Effect] = Field({}, description="when replacement was resumed, by group")

    def join(self, other: Acks) -> Acks:
        if other is self or other == NO_ACKS:
            return self
        return Acks.model_construct(
            status=latest(self.status, other.status),
            mirror=latest(self.mirror, other.mirror),
            terminate=latest(self.terminate, other.terminate),
            refused=latest(self.refused, other.refused),
            unseen=latest(self.unseen, other.unseen),
            doubt=latest(self.doubt, other.doubt),
            joined=union(self.joined, other.joined),
            stamps=union(self.stamps, other.stamps),
            answers=union(self.answers, other.answers),
            heartbeats=union(self.heartbeats, other.heartbeats),
            protections=union(self.protections, other.protections),
            alarms=union(self.alarms, other.alarms),
            billed=latest(self.billed, other.billed),
            closed=latest(self.closed, other.closed),
            suspended=union(self.suspended, other.suspended),
            resumed=union(self.resumed, other.resumed),
        )


NO_ACKS = Acks()
