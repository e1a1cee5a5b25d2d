"""Interfaces between the controller and AWS. Adapters implement the interfaces with AWS's services, and the tests'
fakes implement the interfaces in memory.

Every method of the interfaces may raise errors.RetryLater (after throttling or a network error) or errors.GiveUp (after
a refusal or a misconfiguration). Every read of AWS returns a complete result. If a page of a result fails or is
missing, the read raises an error and never returns a shorter result.
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
    """A node's facts, with the version of the table item that contains the facts. A conditional write succeeds only if
    the table item still has the version `version`.
    """

    facts: NodeFacts
    version: int  # of the table's item; 0 if no item exists yet
    pending: bool = field(default=False, compare=False)  # the item's last write woke the table's stream


@dataclass(frozen=True)
class StoredMembership:
    """A cluster's stored membership, with the version of the table item that contains the membership."""

    membership: Membership
    published: int  # the revision last seen in the parameter store
    version: int  # of the table's item


@dataclass(frozen=True)
class StoredTurn:
    """The stored lock that lets only one run at a time announce the statuses of a cluster's nodes."""

    number: int = 0  # counts how often a run took the lock
    until: float = 0.0  # the time when the lock is released at the latest
    left: frozenset[str] = frozenset()  # instances that other runs left to this run
    version: int = 0  # of the table's item


@dataclass(frozen=True)
class SeenInstance:
    """One instance in the result of an EC2 describe call."""

    instance: str  # instance id
    state: InstanceState
    tags: Mapping[str, str]  # tag key -> value
    launched_at: float | None  # seconds since the epoch
    private_ip: str | None
    profile: str | None = None  # ARN of the IAM instance profile
    type: str = ""  # instance type
    market: Market = "on-demand"  # the purchase option


@dataclass(frozen=True)
class SeenMember:
    """The description of one member instance of an Auto Scaling group."""

    instance: str  # instance id
    group: str  # the Auto Scaling group's name
    phase: Phase  # phase of the instance in the group
    waits: Transition | None  # the transition for which a lifecycle action is pending
    protected: bool | None = None  # from scale-in


@dataclass(frozen=True)
class StoredGroup:
    """The stored facts about an Auto Scaling group, with the version of the group's table item."""

    facts: GroupFacts
    version: int  # of the table's item


@dataclass(frozen=True)
class TrailEntry:
    at: float  # the time of the entry
    entry: Entry  # of the audit trail


@dataclass(frozen=True)
class Wake:
    """The nodes, clusters and groups to check after a batch of records of the DynamoDB table's stream."""

    nodes: Mapping[str, StoredNode] = field(default_factory=dict)  # nodes with changed items, by instance id
    clusters: frozenset[str] = frozenset()  # clusters to check
    ticked: frozenset[str] = frozenset()  # clusters to check also for the effects of time and of lost writes
    groups: frozenset[str] = frozenset()  # Auto Scaling groups to check
    surveyed: frozenset[str] = frozenset()  # `ticked` clusters whose complete resync has just been written


class Nodes(Protocol):
    """The store of facts about nodes, with one item per instance."""

    def get(self, instance: str) -> StoredNode | None:
        """Read one node's facts with a strongly consistent read."""

    def get_many(self, instances: Iterable[str]) -> Mapping[str, StoredNode]:
        """Read the facts about many nodes with strongly consistent reads. Instances without stored facts are left out
        of the result.
        """

    def put(self, node: StoredNode, *, wake: bool, expires: float | None) -> None:
        """Replace the node's stored item if the stored item has the version `node.version`. Raises Conflict when the
        stored item has a different version.
        """

    def of_cluster(self, cluster: str) -> Mapping[str, StoredNode]:
        """Read the cluster's nodes from the table's index, which may be slightly out of date."""


class GroupRecords(Protocol):
    """The store of facts about Auto Scaling groups, with one item per group."""

    def get(self, group: str) -> StoredGroup | None:
        """Read the facts about one Auto Scaling group with a strongly consistent read."""

    def put(self, stored: StoredGroup, *, wake: bool) -> None:
        """Replace the stored item if the stored item has the version `stored.version`. Raises Conflict when the stored
        item has a different version.
        """

    def of_cluster(self, cluster: str) -> Mapping[str, StoredGroup]:
        """Read the Auto Scaling groups with the cluster's tag from the table's index, which may be slightly out of
        date.
        """


class Jobs(Protocol):
    def get(self, cluster: str) -> tuple[JobFacts | None, int]:
        """Read the cluster's latest job report, and the version of the table item that contains the report. If no
        report is stored, the version is 0.
        """

    def put(self, cluster: str, job: JobFacts, version: int, *, wake: bool) -> None:
        """Replace the stored item of the job report if the stored item has the version `version`. Raises Conflict when
        the stored item has a different version.
        """


class Clusters(Protocol):
    """The store of each cluster's own items: its membership, status lock, ticks and audit trail."""

    def get(self, cluster: str) -> StoredMembership:
        """Read the cluster's membership with a strongly consistent read. If no membership is stored, returns an empty
        membership of version 0.
        """

    def put(self, cluster: str, stored: StoredMembership) -> None:
        """Replace the stored item if the stored item has the version `stored.version`. Raises Conflict when the stored
        item has a different version.
        """

    def turn(self, cluster: str) -> StoredTurn:
        """Read the cluster's status lock with a strongly consistent read. If no lock is stored, returns a free lock of
        version 0.
        """

    def put_turn(self, cluster: str, turn: StoredTurn) -> None:
        """Replace the lock's stored item if the stored item has the version `turn.version`. Raises Conflict when the
        stored item has a different version.
        """

    def tick(self, cluster: str, at: float, *, surveyed: bool) -> None:
        """Write a tick item, which makes the controller check the cluster without an event. `surveyed` says that the
        facts of a complete resync were written before the tick.
        """

    def record(self, cluster: str, at: float, entries: Sequence[Entry]) -> None:
        """Add the entries to the cluster's audit trail."""

    def trail(self, cluster: str, since: float) -> Sequence[TrailEntry]:
        """The cluster's audit-trail entries since the time `since`, oldest first."""

    def members_item_key(self, cluster: str) -> str:
        """The key, in the form `<pk>/<sk>`, of the table item that contains the cluster's full list of members. The
        field `Target.pointer` contains the key of the table item with the list of members.
        """


class Parameters(Protocol):
    def policies(self) -> Mapping[str, str]:
        """The JSON of every cluster's policy parameter, by cluster name."""

    def stages(self) -> Mapping[str, str]:
        """The values of all SSM parameters below the path `STAGES`, by parameter name. The parameters below `STAGES`
        say where this account's controllers have their resources.
        """

    def target(self, cluster: str) -> str | None:
        """The JSON in the cluster's parameter `target`, or None if the parameter does not exist."""

    def put_target(self, cluster: str, target: Target, pointer: str) -> None: ...

    def put_policy(self, cluster: str, text: str, *, overwrite: bool) -> bool:
        """Write the cluster's policy parameter. Returns False and writes nothing if a policy exists and `overwrite` is
        not set.
        """

    def delete(self, cluster: str) -> Sequence[str]:
        """Delete all SSM parameters of the cluster, and return the names of the deleted parameters."""


@dataclass(frozen=True)
class Batch:
    """The result of an EC2 call for many instances, which lists the instances on which the call had no effect."""

    missing: frozenset[str] = frozenset()  # instances that EC2 does not know
    refused: Mapping[str, str] = field(default_factory=dict)  # by instance: the reason why EC2 refused it


ALL_DONE = Batch()  # the call had an effect on all instances


class Instances(Protocol):
    def tagged(self, keys: Iterable[str]) -> Sequence[SeenInstance]:
        """All EC2 instances that have a tag with any of the given keys."""

    def of_templates(self, names: Iterable[str]) -> Mapping[str, Sequence[SeenInstance]]:
        """All EC2 instances that were launched from launch templates with the given names, by the template's name."""

    def by_id(self, instances: Iterable[str]) -> Sequence[SeenInstance]:
        """Describe the EC2 instances with the given ids. An instance that is missing in the result may nevertheless
        exist.
        """

    def tag(self, instances: Sequence[str], key: str, value: str, until: float | None = None) -> Batch:
        """Tag many instances, in batches. If EC2 refuses some instances, the remaining instances are still tagged.
        After the time `until`, no request is sent, and RetryLater is raised.
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
        """The transition (launch or terminate) of each lifecycle hook of the Auto Scaling group, by the hook's name."""

    def complete_action(
        self, instance: str, group: str, hook: str, token: str | None, result: Literal["CONTINUE", "ABANDON"]
    ) -> bool:
        """Complete the instance's pending lifecycle action. Returns False, which is no error, if the lifecycle action
        no longer exists.
        """

    def heartbeat(self, instance: str, group: str, hook: str, token: str | None) -> bool:
        """Extend the time limit of the instance's pending lifecycle action. Returns False if the lifecycle action no
        longer exists.
        """

    def terminate(self, instance: str, group: str, *, decrement: bool) -> bool:
        """Terminate a member of the Auto Scaling group, and lower the group's desired capacity by one if `decrement` is
        set. Returns False if the instance is not a member of the group. Raises Refused, for example if `decrement`
        would lower the desired capacity below the group's minimum size.
        """

    def protect(self, instances: Sequence[str], group: str) -> None: ...

    def tagged(self, key: str) -> Mapping[str, str]:
        """The value of the tag `key` of each Auto Scaling group that has the tag, by group name. The tag can be set by
        anybody who may tag Auto Scaling groups.
        """

    def of_own_stacks(self, key: str) -> Mapping[str, str]:
        """The same result as `tagged`, restricted to groups that were created by the CloudFormation stack that the
        tag's value names. The name of the stack that created a group cannot be forged, because AWS itself stores the
        name.
        """

    def sizes(self, groups: Iterable[str]) -> Mapping[str, GroupSize]:
        """The size of each Auto Scaling group, by group name. Groups that do not exist are left out of the result."""

    def suspend_replacement(self, group: str) -> None:
        """Stop the group from replacing stopped members. The group still launches and terminates members on request."""

    def resume_replacement(self, group: str) -> None:
        """Undo `suspend_replacement`: the group replaces stopped members again."""

    def suspend_launches(self, group: str) -> None:
        """Stop the group from launching instances. Running members stay, and can still be terminated on request."""

    def resume_launches(self, group: str) -> None:
        """Undo `suspend_launches`: the group launches its missing instances again."""

    def set_desired(self, group: str, desired: int) -> None:
        """Set the group's desired capacity at once, without waiting for the group's cool-down."""


class Metrics(Protocol):
    """The interface for counts that raise alarms, and for the current values (gauges) of each cluster's job."""

    def count(self, name: str, cluster: str, value: int = 1) -> None: ...

    def gauges(self, cluster: str, values: Mapping[str, float]) -> None:
        """Record current values (gauges) of the cluster's job, by the gauge's name."""


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
