"""The facts about an Auto Scaling group: its cluster, its failed launches, and the controller's response to failed
launches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dyntrain.controller.core.records.facts import ClusterStatement
from dyntrain.controller.core.records.registers import Fact, latest


@dataclass(frozen=True)
class GroupSize:
    """The limits and the size of an Auto Scaling group, as just read from AWS. `running` is the number of members that
    are not being terminated. `base` says that the group's tags mark its instances as base nodes. `launches` is False
    while somebody has suspended the group's launches.
    """

    minimum: int  # smallest capacity of the group
    maximum: int  # largest capacity of the group
    desired: int  # the desired capacity
    running: int  # number of members that are not being terminated
    base: bool = False  # the group launches base nodes
    launches: bool = True  # the group may launch instances


class LaunchFailure(Fact):
    """A launch that failed, with AWS's reason in `message`."""

    at: float  # when the launch failed
    message: str = ""  # AWS's reason

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.at, self.message)


class Capacity(Fact):
    """The controller's response to failed launches. The controller stores its response before it sets the group's
    capacity, and stores the response again with `done` afterwards. If the controller crashes before it has stored
    `done`, it repeats its response.

    `wanted` is the capacity to restore after the cool-down that follows failed launches, and `desired` is the lower
    capacity that was set. `failure` is the time of the latest failed launch to which the controller has responded.
    """

    at: float  # time of the response
    failure: float  # time of the latest answered failure
    wanted: int  # the capacity to restore
    desired: int  # the capacity that was set
    times: int  # number of consecutive failures
    done: bool  # the capacity was set

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.at, self.failure, self.times, self.done, self.wanted, self.desired)


class Hold(Fact):
    """Whether the group's launches are stopped (`held`), because `times` consecutive nodes failed in the same way with
    the script prepare-data whose digest is `script`. `reason` says why the last of the nodes failed. The controller
    stores the hold before it stops or allows the group's launches, and stores the hold again with `done` afterwards.
    """

    at: float  # when the controller decided
    held: bool  # the launches are stopped
    script: str  # SHA-256 of prepare-data
    times: int  # number of consecutive failures
    reason: str  # of the last failure
    done: bool  # the launches were stopped or allowed

    @property
    def sort_key(self) -> tuple[Any, ...]:
        return (self.at, self.done, self.held, self.times, self.script, self.reason)


class GroupFacts(Fact):
    """The facts about an Auto Scaling group. Every field is merged separately. `named.cluster` is "" if the group no
    longer belongs to a cluster's stack.
    """

    group: str  # the Auto Scaling group's name
    named: ClusterStatement | None = None  # the cluster to which the group belongs
    failed: LaunchFailure | None = None  # the last failed launch
    capacity: Capacity | None = None  # the response to failed launches
    hold: Hold | None = None  # whether the launches are stopped

    def join(self, other: GroupFacts) -> GroupFacts:
        """The merged facts of `self` and `other`. Raises ValueError if `self` and `other` are facts of different
        groups.
        """
        if self.group != other.group:
            raise ValueError(f"facts of different groups cannot be merged: {self.group} and {other.group}")
        return GroupFacts(
            group=self.group,
            named=latest(self.named, other.named),
            failed=latest(self.failed, other.failed),
            capacity=latest(self.capacity, other.capacity),
            hold=latest(self.hold, other.hold),
        )
