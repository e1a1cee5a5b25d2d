"""Facts about an Auto Scaling group: its cluster, its failed launches, and the response to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dyntrain.controller.core.records.facts import ClusterStatement
from dyntrain.controller.core.records.registers import Fact, latest


@dataclass(frozen=True)
class GroupSize:
    """A group's limits and size, as just read. `running` is the number of members that are not being terminated.
    `base`: the group's tags say that it launches base nodes. `launches` False: somebody has suspended the launches.
    """

    minimum: int
    maximum: int
    desired: int
    running: int
    base: bool = False
    launches: bool = True


class LaunchFailure(Fact):
    """A failed launch; `message` is AWS's reason."""

    at: float
    message: str = ""

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, self.message)


class Capacity(Fact):
    """The response to failed launches. The response is stored before its effect, and again with `done` after its
    effect, so that a crash in between is repaired.

    `wanted` is the capacity to restore, `desired` is the capacity that was set, `times` is the number of consecutive
    failures, and `failure` is the time of the latest failure with a response.
    """

    at: float
    failure: float
    wanted: int
    desired: int
    times: int
    done: bool

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, self.failure, self.times, self.done, self.wanted, self.desired)


class Hold(Fact):
    """Whether the group's launches are stopped, after `times` consecutive nodes failed alike with the prepare-data
    `script`. `reason` is the reason of the last failure. The hold is stored before its effect, and again with `done`
    after its effect.
    """

    at: float
    held: bool
    script: str
    times: int
    reason: str
    done: bool

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.at, self.done, self.held, self.times, self.script, self.reason)


class GroupFacts(Fact):
    """Facts about a group. As in NodeFacts, every field is merged separately. `named.cluster` is "" when the group no
    longer belongs to a cluster's stack.
    """

    group: str
    named: ClusterStatement | None = None
    failed: LaunchFailure | None = None
    capacity: Capacity | None = None
    hold: Hold | None = None

    def join(self, other: GroupFacts) -> GroupFacts:
        """The merged facts. Raises ValueError for two different groups."""
        if self.group != other.group:
            raise ValueError(f"facts of the groups {self.group} and {other.group} do not merge")
        return GroupFacts(
            group=self.group,
            named=latest(self.named, other.named),
            failed=latest(self.failed, other.failed),
            capacity=latest(self.capacity, other.capacity),
            hold=latest(self.hold, other.hold),
        )
