"""What the shell needs of the world. Adapters implement these for AWS, the tests' fakes in memory.

Every method may raise errors.RetryLater (throttled, network) or errors.GiveUp (refused, misconfigured). A read that returns, returns
everything: a failed or missing page is an error, never a shorter answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from controller.contract import Target
from controller.facts import NodeFacts, Phase, State, Transition
from controller.groups import GroupFacts, GroupSize
from controller.job import JobFacts
from controller.target import Membership

Clock = Callable[[], float]


@dataclass(frozen=True)
class StoredNode:
    """`version` is what a conditional write must still find; 0: the item does not exist yet. `pending`: its last write woke the stream."""

    facts: NodeFacts
    version: int
    pending: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class StoredMembership:
    """`published` is the revision that was last seen to be in the parameter store."""

    membership: Membership
    published: int
    version: int


@dataclass(frozen=True)
class SeenInstance:
    """One instance of a describe call, with all its tags."""

    instance: str
    state: State
    tags: Mapping[str, str]
    launched_at: float | None
    private_ip: str | None


@dataclass(frozen=True)
class SeenMember:
    """One member of an Auto Scaling group. `waits`: a lifecycle action is pending for this transition. `protected`: from scale-in."""

    instance: str
    group: str
    phase: Phase
    waits: Transition | None
    protected: bool | None = None


@dataclass(frozen=True)
class StoredGroup:
    """As `StoredNode`."""

    facts: GroupFacts
    version: int


@dataclass(frozen=True)
class TrailEntry:
    at: float
    entry: Mapping[str, str]


@dataclass(frozen=True)
class Wake:
    """What a batch of stream records asks for. `ticked`: look also at what only time or a lost write can have changed."""

    nodes: Mapping[str, StoredNode] = field(default_factory=dict)
    clusters: frozenset[str] = frozenset()
    ticked: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()


class Nodes(Protocol):
    """The facts, one item an instance."""

    def get(self, instance: str) -> StoredNode | None:
        """A consistent read."""

    def get_many(self, instances: Iterable[str]) -> Mapping[str, StoredNode]:
        """Consistent reads; instances without facts are left out."""

    def put(self, node: StoredNode, *, wake: bool, expires: float | None) -> None:
        """Write over version `node.version`. Raises Conflict when the item has another one."""

    def of_cluster(self, cluster: str) -> Mapping[str, StoredNode]:
        """By the index, so a moment old; consistent reads confirm what matters."""


class GroupRecords(Protocol):
    """The facts about Auto Scaling groups, one item a group."""

    def get(self, group: str) -> StoredGroup | None:
        """A consistent read."""

    def put(self, stored: StoredGroup, *, wake: bool) -> None:
        """Write over `stored.version`. Raises Conflict."""

    def of_cluster(self, cluster: str) -> Mapping[str, StoredGroup]:
        """The groups that carry the cluster's tag; by the index, so a moment old."""


class Jobs(Protocol):
    def get(self, cluster: str) -> tuple[JobFacts | None, int]:
        """The latest report with the item's version (0: none)."""

    def put(self, cluster: str, job: JobFacts, version: int, *, wake: bool) -> None:
        """Write over `version`. Raises Conflict."""


class Clusters(Protocol):
    """Each cluster's own items: its membership, ticks and audit trail."""

    def get(self, cluster: str) -> StoredMembership:
        """A consistent read; an empty membership of version 0 when there is none."""

    def put(self, cluster: str, stored: StoredMembership) -> None:
        """Write over `stored.version`. Raises Conflict."""

    def tick(self, cluster: str, at: float) -> None:
        """Have the cluster looked at, though nothing was seen."""

    def record(self, cluster: str, at: float, entries: Sequence[Mapping[str, str]]) -> None:
        """Add to the audit trail."""

    def trail(self, cluster: str, since: float) -> Sequence[TrailEntry]:
        """The audit trail from `since` on, oldest first."""

    def pointer(self, cluster: str) -> str:
        """Which item holds the full list, as `<pk>/<sk>`, for `Target.pointer`."""


class Parameters(Protocol):
    def policies(self) -> Mapping[str, str]:
        """The JSON of every cluster's policy parameter, by cluster name."""

    def target(self, cluster: str) -> str | None:
        """The JSON in the parameter `target`."""

    def put_target(self, cluster: str, target: Target, pointer: str) -> None: ...

    def put_policy(self, cluster: str, text: str, *, overwrite: bool) -> bool:
        """False: there is one already, and it was not to be overwritten."""

    def delete(self, cluster: str) -> Sequence[str]:
        """Delete all parameters of the cluster; returns their names."""


class Instances(Protocol):
    def tagged(self, keys: Iterable[str]) -> Sequence[SeenInstance]:
        """All instances that carry any of the tag keys."""

    def of_templates(self, names: Iterable[str]) -> Mapping[str, Sequence[SeenInstance]]:
        """All instances that were launched from launch templates of these names, by name."""

    def by_id(self, instances: Iterable[str]) -> Sequence[SeenInstance]:
        """Those of the instances that EC2 shows; one that is missing proves nothing."""

    def tag(self, instances: Sequence[str], key: str, value: str) -> Sequence[str]:
        """Tag many at once; returns those that EC2 does not know (of), the others are tagged."""

    def terminate(self, instances: Sequence[str]) -> Sequence[str]:
        """As `tag`."""


class Groups(Protocol):
    def members(self, groups: Iterable[str]) -> Sequence[SeenMember]: ...

    def hooks(self, group: str) -> Mapping[str, Transition]:
        """The group's lifecycle hooks by name."""

    def complete(self, instance: str, group: str, hook: str, token: str | None, result: Literal["CONTINUE", "ABANDON"]) -> bool:
        """False: there was no such action any more, which is as good as done."""

    def heartbeat(self, instance: str, group: str, hook: str, token: str | None) -> bool:
        """False: there is no such action any more."""

    def terminate(self, instance: str, group: str) -> None:
        """With decrement. Raises Refused, for one at the group's minimum."""

    def protect(self, instances: Sequence[str], group: str) -> None: ...

    def tagged(self, key: str) -> Mapping[str, str]:
        """The groups that carry the tag key, with its value."""

    def sizes(self, groups: Iterable[str]) -> Mapping[str, GroupSize]:
        """Groups that do not exist are left out."""

    def set_desired(self, group: str, desired: int) -> None:
        """At once, without the group's cool-down."""


class Metrics(Protocol):
    """Counts that alarms are set on."""

    def count(self, name: str, cluster: str, value: int = 1) -> None: ...


@dataclass(frozen=True)
class Ports:
    nodes: Nodes
    jobs: Jobs
    clusters: Clusters
    parameters: Parameters
    instances: Instances
    groups: Groups
    clock: Clock
    group_records: GroupRecords
    metrics: Metrics
