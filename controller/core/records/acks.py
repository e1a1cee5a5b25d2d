"""The acknowledgements of a node: the controller's record of its own actions and announcements.

Each kind is a field with its own join, that is, a merge that ignores order and repetition. `actions.acknowledgement`
records the effects of actions. The loop `converge` records announcements, and the resync records notes about reads.
"""

from __future__ import annotations

from typing import Any, Literal

from dyntrain.controller.core.records.registers import Fact, latest, union
from pydantic import Field

# the result of a lifecycle action for which AWS refuses further heartbeats; `stale`: the action was over already
NO_HEARTBEAT = "refused"
Answer = Literal["CONTINUE", "ABANDON", "stale", "refused"]  # after `refused` the action still needs an answer


class Effect(Fact):
    """An action that took effect, as seen at `at`."""

    at: float

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at,)


class Announcement(Fact):
    """A value that was written or announced at `at`."""

    at: float
    value: str

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, self.value)


class Termination(Fact):
    """A termination that was ordered at `at`. `lowered`: the order also lowered the size of the `group`."""

    at: float
    group: str = ""
    lowered: bool = False

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, self.group, self.lowered)


class LifecycleResult(Fact):
    """The result of a lifecycle action that was completed, is stale, or gets no more heartbeats."""

    at: float
    result: Answer

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, self.result)


class MissedReads(Fact):
    """How many consecutive describe calls, the last at `at`, did not show the instance."""

    at: float
    times: int

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, self.times)


class Doubt(Fact):
    """Whether a read that began at `at` missed the node together with most other nodes, which makes the read
    doubtful.
    """

    at: float
    lost: bool

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, self.lost)


class Acks(Fact):
    """All acknowledgements of a node. Every field starts empty, and joining with an empty field changes nothing."""

    status: Announcement | None = Field(None, description="the last announced status and reason (`Standing.line`)")
    mirror: Announcement | None = Field(None, description="the status that was written into the tag")
    terminate: Termination | None = None
    refused: Announcement | None = Field(None, description="why AWS refused to stop or terminate the node")
    unseen: MissedReads | None = None
    doubt: Doubt | None = None
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
