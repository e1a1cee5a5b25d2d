"""Facts about an Auto Scaling group beyond its members: its cluster, failed launches, and the response to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dyntrain.controller.core.records.facts import ClusterStatement
from dyntrain.controller.core.records.registers import Fact, latest


@dataclass(frozen=True)
class GroupSize:
    """A group's limits and size, as just read: `running` counts the members that are not being terminated. `base`: its
    tags say that it launches base nodes. `launches` False: launching is suspended, by whomever.
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
    """The response to failed launches. Written before the effect and once more (`done`) after it, so that a crash in
    between is repaired. `wanted` is the capacity to return to, `desired` what was set, `times` how many failures in a
    row, `failure` the latest one answered.
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
    """Whether the group's launches are stopped, after `times` nodes in a row failed alike with the prepare-data
    `script`; `reason` is the last one's. Written before and after the effect.
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
    """Facts about a group; as in NodeFacts every field has a join of its own. `named.cluster` "" says that it no longer
    belongs to a cluster's stack.
    """

    group: str
    named: ClusterStatement | None = None
    failed: LaunchFailure | None = None
    capacity: Capacity | None = None
    hold: Hold | None = None

    def join(self, other: GroupFacts) -> GroupFacts:
        """The facts of both. Raises ValueError for two different groups."""
        if self.group != other.group:
            raise ValueError(f"facts of the groups {self.group} and {other.group} do not merge")
        return GroupFacts(
            group=self.group,
            named=latest(self.named, other.named),
            failed=latest(self.failed, other.failed),
            capacity=latest(self.capacity, other.capacity),
            hold=latest(self.hold, other.hold),
        )
