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
from controller.job import JobFacts
from controller.target import Membership

Clock = Callable[[], float]


@dataclass(frozen=True)
class StoredNode:
    """`version` is what a conditional write must still find; 0: the item does not exist yet."""

    facts: NodeFacts
    version: int


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
    """One member of an Auto Scaling group. `waits`: a lifecycle action is pending for this transition."""

    instance: str
    group: str
    phase: Phase
    waits: Transition | None


@dataclass(frozen=True)
class Wake:
    """What a batch of stream records asks for. `ticked`: look also at what only time or a lost write can have changed."""

    nodes: Mapping[str, StoredNode] = field(default_factory=dict)
    clusters: frozenset[str] = frozenset()
    ticked: frozenset[str] = frozenset()


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

    def pointer(self, cluster: str) -> str:
        """Which item holds the full list, as `<pk>/<sk>`, for `Target.pointer`."""


class Parameters(Protocol):
    def policies(self) -> Mapping[str, str]:
        """The JSON of every cluster's policy parameter, by cluster name."""

    def target(self, cluster: str) -> str | None:
        """The JSON in the parameter `target`."""

    def put_target(self, cluster: str, target: Target, pointer: str) -> None: ...


class Instances(Protocol):
    def tagged(self, keys: Iterable[str]) -> Sequence[SeenInstance]:
        """All instances that carry any of the tag keys."""

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


@dataclass(frozen=True)
class Ports:
    nodes: Nodes
    jobs: Jobs
    clusters: Clusters
    parameters: Parameters
    instances: Instances
    groups: Groups
    clock: Clock
