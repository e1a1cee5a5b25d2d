"""Implementations in memory, for `dyntrain replay`, of the ports through which the controller uses AWS. The
implementations simulate the DynamoDB table with the table's stream, and other resources of AWS.

AWS is never called. An instance is assumed to exist and to run unless an event says otherwise. Actions on instances and
groups have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import Conflict
from dyntrain.controller.contract.messages import NODE_TYPE_TAG, ClusterPolicy, Target
from dyntrain.controller.core.history.trail import Entry
from dyntrain.controller.core.records.facts import InstanceState, NodeFacts, Transition
from dyntrain.controller.core.records.groups import GroupSize
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.target import Membership, as_parameter
from dyntrain.controller.core.views.view import GROUP_TAG
from dyntrain.controller.loops.ports import (
    Batch,
    Ports,
    SeenInstance,
    SeenMember,
    StoredGroup,
    StoredMembership,
    StoredNode,
    StoredTurn,
    TrailEntry,
    Wake,
)


@dataclass
class Memory:  # the simulated DynamoDB table
    """A DynamoDB table in memory. The fields `..._to_wake` contain the names of changed items that the table's stream
    delivers next.
    """

    policy: ClusterPolicy
    elastic: ElasticTag
    now: float  # time of the replay
    items: dict[tuple[str, str], tuple[Any, int]] = field(default_factory=dict)  # (value, version) by (kind, name)
    nodes_to_wake: set[str] = field(default_factory=set)  # ids of changed nodes
    clusters_to_wake: set[str] = field(default_factory=set)  # names of changed clusters
    groups_to_wake: set[str] = field(default_factory=set)  # names of changed Auto Scaling groups
    targets: dict[str, str] = field(default_factory=dict)  # published target parameters, by cluster

    def ports(self) -> Ports:
        return Ports(
            nodes=_Nodes(self),
            jobs=_Jobs(self),
            clusters=_Clusters(self),
            parameters=_Parameters(self),
            instances=_Instances(self),
            groups=_Groups(self),
            clock=lambda: self.now,
            group_records=_GroupRecords(self),
            metrics=_Metrics(),
        )

    def take_changes(self, *, tick: bool = False) -> Wake | None:
        """Remove and return all changes in the table's stream, or return None for an empty stream."""
        changed_nodes = {name: StoredNode(*self.items["node", name]) for name in self.nodes_to_wake}
        ticked_clusters = frozenset({self.policy.cluster}) if tick else frozenset()
        wake = Wake(changed_nodes, frozenset(self.clusters_to_wake), ticked_clusters, frozenset(self.groups_to_wake))
        for names_to_wake in (self.nodes_to_wake, self.clusters_to_wake, self.groups_to_wake):
            names_to_wake.clear()
        return wake if wake.nodes or wake.clusters or wake.ticked or wake.groups else None

    def put(self, key: tuple[str, str], value: Any, version: int) -> None:
        if self.items.get(key, (None, 0))[1] != version:
            raise Conflict(f"the item {key} cannot be written: it is no longer at version {version}")
        self.items[key] = (value, version + 1)

    def items_of_kind(self, kind: str) -> dict[str, tuple[Any, int]]:
        return {name: item for (item_kind, name), item in self.items.items() if item_kind == kind}


class _Nodes:  # records of nodes in the table
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def get(self, instance: str) -> StoredNode | None:
        stored_item = self._memory.items.get(("node", instance))
        return StoredNode(*stored_item) if stored_item is not None else None

    def get_many(self, instances: Iterable[str]) -> Mapping[str, StoredNode]:
        return {instance: node for instance in instances if (node := self.get(instance)) is not None}

    def put(self, node: StoredNode, *, wake: bool, expires: float | None) -> None:
        self._memory.put(("node", node.facts.instance), node.facts, node.version)
        if wake:
            self._memory.nodes_to_wake.add(node.facts.instance)

    def of_cluster(self, cluster: str) -> Mapping[str, StoredNode]:
        nodes = {name: StoredNode(*stored_item) for name, stored_item in self._memory.items_of_kind("node").items()}
        return {
            name: node
            for name, node in nodes.items()
            if node.facts.named is not None and node.facts.named.cluster == cluster
        }


class _GroupRecords:  # records of Auto Scaling groups in the table
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def get(self, group: str) -> StoredGroup | None:
        stored_item = self._memory.items.get(("group", group))
        return StoredGroup(*stored_item) if stored_item is not None else None

    def put(self, stored: StoredGroup, *, wake: bool) -> None:
        self._memory.put(("group", stored.facts.group), stored.facts, stored.version)
        if wake:
            self._memory.groups_to_wake.add(stored.facts.group)

    def of_cluster(self, cluster: str) -> Mapping[str, StoredGroup]:
        return {}


class _Jobs:  # records of jobs in the table
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def get(self, cluster: str) -> tuple[JobFacts | None, int]:
        return self._memory.items.get(("job", cluster), (None, 0))

    def put(self, cluster: str, job: JobFacts, version: int, *, wake: bool) -> None:
        self._memory.put(("job", cluster), job, version)
        if wake:
            self._memory.clusters_to_wake.add(cluster)


class _Clusters:  # records of clusters in the table
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def get(self, cluster: str) -> StoredMembership:
        stored_membership, version = self._memory.items.get(("cluster", cluster), (None, 0))
        return (
            replace(stored_membership, version=version)
            if stored_membership is not None
            else StoredMembership(Membership(), published=0, version=0)
        )

    def put(self, cluster: str, stored: StoredMembership) -> None:
        self._memory.put(("cluster", cluster), stored, stored.version)

    def turn(self, cluster: str) -> StoredTurn:  # the lock for announcing statuses
        stored_turn, version = self._memory.items.get(("turn", cluster), (None, 0))
        return replace(stored_turn, version=version) if stored_turn is not None else StoredTurn()

    def put_turn(self, cluster: str, turn: StoredTurn) -> None:
        self._memory.put(("turn", cluster), turn, turn.version)

    def tick(self, cluster: str, at: float, *, surveyed: bool) -> None:  # marks the cluster as changed
        self._memory.clusters_to_wake.add(cluster)

    def record(self, cluster: str, at: float, entries: Sequence[Entry]) -> None:
        """Ignore the entries of the audit trail, because a replay prints its own outcome."""

    def trail(self, cluster: str, since: float) -> Sequence[TrailEntry]:
        return ()

    def members_item_key(self, cluster: str) -> str:
        return f"cluster#{cluster}/target"


class _Parameters:  # SSM parameters
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def policies(self) -> Mapping[str, str]:
        return {self._memory.policy.cluster: self._memory.policy.model_dump_json()}

    def stages(self) -> Mapping[str, str]:
        return {}

    def target(self, cluster: str) -> str | None:
        return self._memory.targets.get(cluster)

    def put_target(self, cluster: str, target: Target, pointer: str) -> None:
        self._memory.targets[cluster] = as_parameter(target, pointer)

    def put_policy(self, cluster: str, text: str, *, overwrite: bool) -> bool:
        return False

    def delete(self, cluster: str) -> Sequence[str]:
        return ()


class _Instances:  # EC2 instances
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def tagged(self, keys: Iterable[str]) -> Sequence[SeenInstance]:
        return ()

    def of_templates(self, names: Iterable[str]) -> Mapping[str, Sequence[SeenInstance]]:
        return {}

    def by_id(self, instances: Iterable[str]) -> Sequence[SeenInstance]:
        """Describe instances according to the replayed events. An instance without a tag event has the launch
        template's tags if the instance belongs to one of the policy's groups, and no tags otherwise.
        """
        described_instances = []
        for instance_id in instances:
            facts: NodeFacts = self._memory.items["node", instance_id][0]
            group_name = facts.group_event.group if facts.group_event is not None else None
            template_tags = {
                self._memory.elastic.of(self._memory.policy.cluster): "",
                NODE_TYPE_TAG: "Worker",
                GROUP_TAG: group_name or "",
            }
            state: InstanceState = (
                "terminated"
                if facts.terminated
                else facts.state_event.state
                if facts.state_event is not None
                else "running"
            )
            tags = template_tags if group_name in self._memory.policy.groups else {}
            if facts.tags_event is not None:
                tags = facts.tags_event.tags
            described_instances.append(SeenInstance(instance_id, state, tags, None, None))
        return described_instances

    def tag(self, instances: Sequence[str], key: str, value: str, until: float | None = None) -> Batch:
        return Batch()

    def untag(self, instances: Sequence[str], key: str) -> Batch:
        return Batch()

    def terminate(self, instances: Sequence[str]) -> Batch:
        return Batch()

    def start(self, instances: Sequence[str]) -> Batch:
        return Batch()

    def stop(self, instances: Sequence[str]) -> Batch:
        return Batch()

    def reboot(self, instances: Sequence[str]) -> Batch:
        return Batch()

    def give_profile(self, instance: str, profile: str) -> None:
        """Ignore the profile, because instances in memory have no profile."""


class _Groups:  # Auto Scaling groups
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def members(self, groups: Iterable[str]) -> Sequence[SeenMember]:
        return ()

    def hooks(self, group: str) -> Mapping[str, Transition]:
        return {}

    def complete_action(
        self, instance: str, group: str, hook: str, token: str | None, result: Literal["CONTINUE", "ABANDON"]
    ) -> bool:
        return True

    def heartbeat(self, instance: str, group: str, hook: str, token: str | None) -> bool:
        return True

    def terminate(self, instance: str, group: str, *, decrement: bool) -> bool:
        """Ignore the action."""
        return True

    def protect(self, instances: Sequence[str], group: str) -> None:
        """Ignore the action."""

    def tagged(self, key: str) -> Mapping[str, str]:
        return {}

    def of_own_stacks(self, key: str) -> Mapping[str, str]:
        return {}

    def sizes(self, groups: Iterable[str]) -> Mapping[str, GroupSize]:
        """The sizes of Auto Scaling groups according to the replayed events. The desired size is the number of running
        instances plus one, because the events may report a failed launch.
        """
        node_facts = [
            facts
            for facts, _ in self._memory.items_of_kind("node").values()
            if facts.group_event is not None and not facts.terminated
        ]
        group_sizes = {}
        for group in groups:
            running_count = sum(
                facts.group_event.group == group and facts.group_event.phase in ("launching", "in_service")
                for facts in node_facts
            )
            group_sizes[group] = GroupSize(0, self._memory.policy.max_workers, running_count + 1, running_count)
        return group_sizes

    def suspend_replacement(self, group: str) -> None:
        """Ignore the action."""

    def resume_replacement(self, group: str) -> None:
        """Ignore the action."""

    def suspend_launches(self, group: str) -> None:
        """Ignore the action."""

    def resume_launches(self, group: str) -> None:
        """Ignore the action."""

    def set_desired(self, group: str, desired: int) -> None:
        """Ignore the action."""


class _Metrics:  # CloudWatch metrics
    def count(self, name: str, cluster: str, value: int = 1) -> None:
        """Ignore the count, because a replay raises no alarms."""

    def gauges(self, cluster: str, values: Mapping[str, float]) -> None:
        """Ignore the gauges, because a replay draws no curves."""
