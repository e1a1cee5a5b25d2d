"""Interfaces to AWS. Adapters implement them with AWS's services, fakes of the tests in memory.

Every method may raise errors.RetryLater (throttled, network) or errors.GiveUp (refused, misconfigured). A result that
a read returns is complete: a failed or missing page is an error, never a shorter answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from dyntrain.controller.contract.messages import Target
from dyntrain.controller.core.history.trail import Entry
from dyntrain.controller.core.records.facts import InstanceState, Market, NodeFacts, Phase, Transition
from dyntrain.controller.core.records.groups import GroupFacts, GroupSize
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.target import Membership

Clock = Callable[[], float]


@dataclass(frozen=True)
class StoredNode:
    """A node's facts. A conditional write requires that the item still has `version`; 0: no item exists yet.
    `pending`: the item's last write woke the stream.
    """

    facts: NodeFacts
    version: int
    pending: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class StoredMembership:
    """A cluster's membership. `published` is the revision last seen in the parameter store."""

    membership: Membership
    published: int
    version: int


@dataclass(frozen=True)
class StoredTurn:
    """The turn of the run that may announce a cluster's statuses, which lasts until the time `until` at most. `left`:
    instances that other runs left to this run.
    """

    number: int = 0
    until: float = 0.0
    left: frozenset[str] = frozenset()
    version: int = 0


@dataclass(frozen=True)
class SeenInstance:
    """One instance of a describe call, with all its tags."""

    instance: str
    state: InstanceState
    tags: Mapping[str, str]
    launched_at: float | None
    private_ip: str | None
    profile: str | None = None
    type: str = ""
    market: Market = "on-demand"


@dataclass(frozen=True)
class SeenMember:
    """One member of an Auto Scaling group. `waits`: a lifecycle action is pending for this transition. `protected`:
    from scale-in.
    """

    instance: str
    group: str
    phase: Phase
    waits: Transition | None
    protected: bool | None = None


@dataclass(frozen=True)
class StoredGroup:
    """A group's facts, versioned as `StoredNode`."""

    facts: GroupFacts
    version: int


@dataclass(frozen=True)
class TrailEntry:
    at: float
    entry: Entry


@dataclass(frozen=True)
class Wake:
    """Nodes, clusters and groups to check after a batch of stream records. `ticked` clusters are also checked for
    changes by time or lost writes. `surveyed`: the `ticked` clusters whose complete resync has just been written.
    """

    nodes: Mapping[str, StoredNode] = field(default_factory=dict)
    clusters: frozenset[str] = frozenset()
    ticked: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    surveyed: frozenset[str] = frozenset()


class Nodes(Protocol):
    """The node facts, one item per instance."""

    def get(self, instance: str) -> StoredNode | None:
        """Read one node, consistently."""

    def get_many(self, instances: Iterable[str]) -> Mapping[str, StoredNode]:
        """Read many nodes, consistently; instances without facts are left out."""

    def put(self, node: StoredNode, *, wake: bool, expires: float | None) -> None:
        """Write over version `node.version`. Raises Conflict when the item has another version."""

    def of_cluster(self, cluster: str) -> Mapping[str, StoredNode]:
        """Read the cluster's nodes by the index, which may be slightly stale."""


class GroupRecords(Protocol):
    """The facts about Auto Scaling groups, one item per group."""

    def get(self, group: str) -> StoredGroup | None:
        """Read one group, consistently."""

    def put(self, stored: StoredGroup, *, wake: bool) -> None:
        """Write over `stored.version`. Raises Conflict."""

    def of_cluster(self, cluster: str) -> Mapping[str, StoredGroup]:
        """Read the groups with the cluster's tag by the index, which may be slightly stale."""


class Jobs(Protocol):
    def get(self, cluster: str) -> tuple[JobFacts | None, int]:
        """The latest report with the item's version (0: none)."""

    def put(self, cluster: str, job: JobFacts, version: int, *, wake: bool) -> None:
        """Write over `version`. Raises Conflict."""


class Clusters(Protocol):
    """Each cluster's own items: its membership, turn, ticks and audit trail."""

    def get(self, cluster: str) -> StoredMembership:
        """Read the membership, consistently; an empty one of version 0 when there is none."""

    def put(self, cluster: str, stored: StoredMembership) -> None:
        """Write over `stored.version`. Raises Conflict."""

    def turn(self, cluster: str) -> StoredTurn:
        """Read whose turn it is to announce statuses, consistently; an ended turn of version 0 when there is none."""

    def put_turn(self, cluster: str, turn: StoredTurn) -> None:
        """Write over `turn.version`. Raises Conflict."""

    def tick(self, cluster: str, at: float, *, surveyed: bool) -> None:
        """Have the cluster checked without an event. `surveyed`: a complete resync was written before."""

    def record(self, cluster: str, at: float, entries: Sequence[Entry]) -> None:
        """Add to the audit trail."""

    def trail(self, cluster: str, since: float) -> Sequence[TrailEntry]:
        """The audit trail from `since` on, oldest first."""

    def pointer(self, cluster: str) -> str:
        """The item with the full member list, as `<pk>/<sk>`, for `Target.pointer`."""


class Parameters(Protocol):
    def policies(self) -> Mapping[str, str]:
        """The JSON of every cluster's policy parameter, by cluster name."""

    def stages(self) -> Mapping[str, str]:
        """All parameters below `STAGES`, by name, which say where this account's controllers have their resources."""

    def target(self, cluster: str) -> str | None:
        """The JSON in the parameter `target`."""

    def put_target(self, cluster: str, target: Target, pointer: str) -> None: ...

    def put_policy(self, cluster: str, text: str, *, overwrite: bool) -> bool:
        """Write the policy. False: a policy exists, and `overwrite` is not set."""

    def delete(self, cluster: str) -> Sequence[str]:
        """Delete all parameters of the cluster; returns their names."""


@dataclass(frozen=True)
class Batch:
    """Instances for which a call had no effect: EC2 does not know them, or refused them for a reason."""

    missing: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)


ALL_DONE = Batch()


class Instances(Protocol):
    def tagged(self, keys: Iterable[str]) -> Sequence[SeenInstance]:
        """All instances that carry any of the tag keys."""

    def of_templates(self, names: Iterable[str]) -> Mapping[str, Sequence[SeenInstance]]:
        """All instances that were launched from launch templates of these names, by name."""

    def by_id(self, instances: Iterable[str]) -> Sequence[SeenInstance]:
        """The instances of the list that EC2 shows; a missing instance proves nothing."""

    def tag(self, instances: Sequence[str], key: str, value: str, until: float | None = None) -> Batch:
        """Tag many instances; an error stops no other request. After `until` sends nothing, and raises RetryLater."""

    def untag(self, instances: Sequence[str], key: str) -> Batch:
        """Remove the tag, in batches as `tag`."""

    def terminate(self, instances: Sequence[str]) -> Batch:
        """Terminate the instances, in batches as `tag`."""

    def start(self, instances: Sequence[str]) -> Batch:
        """Start the instances, in batches as `tag`."""

    def stop(self, instances: Sequence[str]) -> Batch:
        """Stop the instances, in batches as `tag`. Stopped instances keep their disks."""

    def reboot(self, instances: Sequence[str]) -> Batch:
        """Reboot the instances, in batches as `tag`. EC2 shows rebooting instances as running."""

    def give_profile(self, instance: str, profile: str) -> None:
        """Replace the instance's profile, by ARN. Raises Refused."""


class Groups(Protocol):
    def members(self, groups: Iterable[str]) -> Sequence[SeenMember]: ...

    def hooks(self, group: str) -> Mapping[str, Transition]:
        """The group's lifecycle hooks by name."""

    def complete(
        self, instance: str, group: str, hook: str, token: str | None, result: Literal["CONTINUE", "ABANDON"]
    ) -> bool:
        """Complete the lifecycle action. False: the action no longer exists, which is no error."""

    def heartbeat(self, instance: str, group: str, hook: str, token: str | None) -> bool:
        """Extend the lifecycle action. False: the action no longer exists."""

    def terminate(self, instance: str, group: str, *, decrement: bool) -> bool:
        """Terminate the member. False: it is no member. Raises Refused, also for `decrement` at minimum size."""

    def protect(self, instances: Sequence[str], group: str) -> None: ...

    def tagged(self, key: str) -> Mapping[str, str]:
        """The groups that carry the tag key, and the tag's value. Anybody who may tag groups can set this tag."""

    def of_own_stacks(self, key: str) -> Mapping[str, str]:
        """The groups of `tagged` that were created by the stack that the tag names, which cannot be forged."""

    def sizes(self, groups: Iterable[str]) -> Mapping[str, GroupSize]:
        """Sizes by group; groups that do not exist are left out."""

    def suspend_replacement(self, group: str) -> None:
        """Stop the group from replacing stopped members. The group still launches and terminates on request."""

    def resume_replacement(self, group: str) -> None:
        """Undo `suspend_replacement`: the group replaces stopped members again."""

    def suspend_launches(self, group: str) -> None:
        """Stop the group from launching instances. Running members stay, and are terminated on request."""

    def resume_launches(self, group: str) -> None:
        """Undo `suspend_launches`: the group launches missing instances."""

    def set_desired(self, group: str, desired: int) -> None:
        """Set the desired capacity at once, without the group's cool-down."""


class Metrics(Protocol):
    """Counts for alarms, and the curves of each cluster's job."""

    def count(self, name: str, cluster: str, value: int = 1) -> None: ...

    def gauges(self, cluster: str, values: Mapping[str, float]) -> None:
        """Record current values of the cluster's job, by name."""


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
