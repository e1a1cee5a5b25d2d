"""Interfaces to AWS. Adapters implement these interfaces with AWS's services, and the tests' fakes implement them in
memory.

Every method may raise errors.RetryLater (throttled, network) or errors.GiveUp (refused, misconfigured). Every read
returns a complete result. A failed or missing page raises an error, and never shortens the result.
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
    """A node's facts. A conditional write requires that the table's item still has the version `version`."""

    facts: NodeFacts
    version: int  # of the table's item; 0 if no item exists yet
    pending: bool = field(default=False, compare=False)  # the item's last write woke the table's stream


@dataclass(frozen=True)
class StoredMembership:
    """A cluster's membership, as the table stores it."""

    membership: Membership
    published: int  # the revision last seen in the parameter store
    version: int  # of the table's item


@dataclass(frozen=True)
class StoredTurn:
    """The turn of the run that may announce the statuses of a cluster's nodes."""

    number: int = 0  # counts the cluster's turns
    until: float = 0.0  # the time when the turn ends at the latest
    left: frozenset[str] = frozenset()  # instances that other runs left to this run
    version: int = 0  # of the table's item


@dataclass(frozen=True)
class SeenInstance:
    """One instance in the result of an EC2 describe call."""

    instance: str
    state: InstanceState
    tags: Mapping[str, str]
    launched_at: float | None
    private_ip: str | None
    profile: str | None = None  # ARN of the IAM instance profile
    type: str = ""  # instance type
    market: Market = "on-demand"


@dataclass(frozen=True)
class SeenMember:
    """One member of an Auto Scaling group."""

    instance: str
    group: str
    phase: Phase
    waits: Transition | None  # the transition for which a lifecycle action is pending
    protected: bool | None = None  # from scale-in


@dataclass(frozen=True)
class StoredGroup:
    """The facts about an Auto Scaling group, with a version like the facts of `StoredNode`."""

    facts: GroupFacts
    version: int  # of the table's item


@dataclass(frozen=True)
class TrailEntry:
    at: float  # the time of the entry
    entry: Entry  # of the audit trail


@dataclass(frozen=True)
class Wake:
    """The nodes, clusters and groups to check after a batch of records of the table's stream."""

    nodes: Mapping[str, StoredNode] = field(default_factory=dict)
    clusters: frozenset[str] = frozenset()
    ticked: frozenset[str] = frozenset()  # clusters to check also for the effects of time and of lost writes
    groups: frozenset[str] = frozenset()
    surveyed: frozenset[str] = frozenset()  # `ticked` clusters whose complete resync has just been written


class Nodes(Protocol):
    """The store of facts about nodes, with one item per instance."""

    def get(self, instance: str) -> StoredNode | None:
        """Read one node with a strongly consistent read."""

    def get_many(self, instances: Iterable[str]) -> Mapping[str, StoredNode]:
        """Read many nodes with strongly consistent reads. Instances without facts are left out of the result."""

    def put(self, node: StoredNode, *, wake: bool, expires: float | None) -> None:
        """Replace the item of version `node.version`. Raises Conflict when the item has a different version."""

    def of_cluster(self, cluster: str) -> Mapping[str, StoredNode]:
        """Read the cluster's nodes from the table's index, which may be slightly out of date."""


class GroupRecords(Protocol):
    """The store of facts about Auto Scaling groups, with one item per group."""

    def get(self, group: str) -> StoredGroup | None:
        """Read one group with a strongly consistent read."""

    def put(self, stored: StoredGroup, *, wake: bool) -> None:
        """Replace the item of version `stored.version`. Raises Conflict when the item has a different version."""

    def of_cluster(self, cluster: str) -> Mapping[str, StoredGroup]:
        """Read the groups with the cluster's tag from the table's index, which may be slightly out of date."""


class Jobs(Protocol):
    def get(self, cluster: str) -> tuple[JobFacts | None, int]:
        """The latest job report, and the version of its item. Without a report, the version is 0."""

    def put(self, cluster: str, job: JobFacts, version: int, *, wake: bool) -> None:
        """Replace the item of version `version`. Raises Conflict when the item has a different version."""


class Clusters(Protocol):
    """The store of each cluster's own items: its membership, turn, ticks and audit trail."""

    def get(self, cluster: str) -> StoredMembership:
        """Read the membership with a strongly consistent read. Without one, returns an empty membership of version
        0.
        """

    def put(self, cluster: str, stored: StoredMembership) -> None:
        """Replace the item of version `stored.version`. Raises Conflict when the item has a different version."""

    def turn(self, cluster: str) -> StoredTurn:
        """Read the cluster's turn with a strongly consistent read. Without one, returns an ended turn of version 0."""

    def put_turn(self, cluster: str, turn: StoredTurn) -> None:
        """Replace the item of version `turn.version`. Raises Conflict when the item has a different version."""

    def tick(self, cluster: str, at: float, *, surveyed: bool) -> None:
        """Write a tick, which has the cluster checked without an event. `surveyed` says that a complete resync was
        written before.
        """

    def record(self, cluster: str, at: float, entries: Sequence[Entry]) -> None:
        """Add the entries to the cluster's audit trail."""

    def trail(self, cluster: str, since: float) -> Sequence[TrailEntry]:
        """The audit-trail entries from the time `since` on, oldest first."""

    def members_item_key(self, cluster: str) -> str:
        """The key, as `<pk>/<sk>`, of the table item with the full list of members, for `Target.pointer`."""


class Parameters(Protocol):
    def policies(self) -> Mapping[str, str]:
        """The JSON of every cluster's policy parameter, by cluster name."""

    def stages(self) -> Mapping[str, str]:
        """All parameters below the path `STAGES`, by name. These parameters say where this account's controllers have
        their resources.
        """

    def target(self, cluster: str) -> str | None:
        """The JSON in the cluster's parameter `target`, or None if the parameter does not exist."""

    def put_target(self, cluster: str, target: Target, pointer: str) -> None: ...

    def put_policy(self, cluster: str, text: str, *, overwrite: bool) -> bool:
        """Write the policy. Returns False if a policy exists and `overwrite` is not set."""

    def delete(self, cluster: str) -> Sequence[str]:
        """Delete all parameters of the cluster, and return their names."""


@dataclass(frozen=True)
class Batch:
    """The instances on which a call had no effect."""

    missing: frozenset[str] = frozenset()  # instances that EC2 does not know
    refused: Mapping[str, str] = field(default_factory=dict)  # by instance: the reason why EC2 refused it


ALL_DONE = Batch()  # the call had an effect on all instances


class Instances(Protocol):
    def tagged(self, keys: Iterable[str]) -> Sequence[SeenInstance]:
        """All instances that have a tag with any of these keys."""

    def of_templates(self, names: Iterable[str]) -> Mapping[str, Sequence[SeenInstance]]:
        """All instances that were launched from launch templates of these names, by the template's name."""

    def by_id(self, instances: Iterable[str]) -> Sequence[SeenInstance]:
        """Describe these instances. If an instance is missing in the result, this does not prove that it is gone."""

    def tag(self, instances: Sequence[str], key: str, value: str, until: float | None = None) -> Batch:
        """Tag many instances, in batches. Refused instances do not stop requests for other instances. After the time
        `until`, sends no request and raises RetryLater.
        """

    def untag(self, instances: Sequence[str], key: str) -> Batch:
        """Remove the tag from the instances, in batches like `tag`."""

    def terminate(self, instances: Sequence[str]) -> Batch:
        """Terminate the instances, in batches like `tag`."""

    def start(self, instances: Sequence[str]) -> Batch:
        """Start the instances, in batches like `tag`."""

    def stop(self, instances: Sequence[str]) -> Batch:
        """Stop the instances, in batches like `tag`. Stopped instances keep their disks."""

    def reboot(self, instances: Sequence[str]) -> Batch:
        """Reboot the instances, in batches like `tag`. EC2 shows rebooting instances as running."""

    def give_profile(self, instance: str, profile: str) -> None:
        """Replace the instance's IAM instance profile by the profile with this ARN. Raises Refused."""


class Groups(Protocol):
    def members(self, groups: Iterable[str]) -> Sequence[SeenMember]: ...

    def hooks(self, group: str) -> Mapping[str, Transition]:
        """The transition of each lifecycle hook of the group, by the hook's name."""

    def complete_action(
        self, instance: str, group: str, hook: str, token: str | None, result: Literal["CONTINUE", "ABANDON"]
    ) -> bool:
        """Complete the lifecycle action. Returns False if the action no longer exists, which is no error."""

    def heartbeat(self, instance: str, group: str, hook: str, token: str | None) -> bool:
        """Extend the time of the lifecycle action. Returns False if the action no longer exists."""

    def terminate(self, instance: str, group: str, *, decrement: bool) -> bool:
        """Terminate the member. Returns False if the instance is not a member. Raises Refused, also if `decrement`
        would go below the group's minimum size.
        """

    def protect(self, instances: Sequence[str], group: str) -> None: ...

    def tagged(self, key: str) -> Mapping[str, str]:
        """The value of the tag `key` by group, for all groups with this tag. Anybody who may tag groups can set it."""

    def of_own_stacks(self, key: str) -> Mapping[str, str]:
        """The groups of `tagged` that were created by the CloudFormation stack that the tag's value names. The name of
        a group's own stack cannot be forged.
        """

    def sizes(self, groups: Iterable[str]) -> Mapping[str, GroupSize]:
        """The size of each group, by group. Groups that do not exist are left out."""

    def suspend_replacement(self, group: str) -> None:
        """Stop the group from replacing stopped members. The group still launches and terminates members on request."""

    def resume_replacement(self, group: str) -> None:
        """Undo `suspend_replacement`: the group replaces stopped members again."""

    def suspend_launches(self, group: str) -> None:
        """Stop the group from launching instances. Running members stay, and are terminated on request."""

    def resume_launches(self, group: str) -> None:
        """Undo `suspend_launches`: the group launches missing instances."""

    def set_desired(self, group: str, desired: int) -> None:
        """Set the desired capacity at once, without the group's cool-down."""


class Metrics(Protocol):
    """The interface for counts that raise alarms, and for the values of each cluster's job over time."""

    def count(self, name: str, cluster: str, value: int = 1) -> None: ...

    def gauges(self, cluster: str, values: Mapping[str, float]) -> None:
        """Record the current values of the cluster's job, by the value's name."""


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
