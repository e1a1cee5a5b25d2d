"""The facts table of the tests' world, in memory: conditional writes, and the stream that they feed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dyntrain.controller.adapters.items import group_item, job_item, node_item, tick_item, turn_item
from dyntrain.controller.core.history.trail import Entry
from dyntrain.controller.core.records.facts import NodeFacts
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.loops.ports import StoredGroup, StoredMembership, StoredNode, StoredTurn, TrailEntry

if TYPE_CHECKING:
    from fakes import World


class FakeNodes:
    def __init__(self, world: World) -> None:
        self.world = world
        self.lagging: dict[str, StoredNode] = {}

    def get(self, instance: str) -> StoredNode | None:
        self.world.called("nodes.get", instance)
        facts, version = self.world.table.get(("node", instance), (None, 0))
        return self._stored(instance, facts, version) if facts is not None else None

    def get_many(self, instances: Iterable[str]) -> Mapping[str, StoredNode]:
        self.world.called("nodes.get_many")
        entries = {instance: self.world.table.get(("node", instance)) for instance in instances}
        return {instance: self._stored(instance, *entry) for instance, entry in entries.items() if entry is not None}

    def put(self, node: StoredNode, *, wake: bool, expires: float | None) -> None:
        self.world.called("nodes.put", node.facts.instance)
        image = node_item(node.facts, node.version + 1, wake, expires)
        self.world.written(("node", node.facts.instance), node.facts, node.version, image)

    def of_cluster(self, cluster: str) -> Mapping[str, StoredNode]:
        self.world.called("nodes.of_cluster", cluster)
        nodes = {name: self._stored(name, *entry) for (kind, name), entry in self.world.table.items() if kind == "node"}
        nodes.update(self.lagging)
        return {
            name: node
            for name, node in nodes.items()
            if node.facts.named is not None and node.facts.named.cluster == cluster
        }

    def _stored(self, instance: str, facts: NodeFacts, version: int) -> StoredNode:
        return StoredNode(facts, version, pending=("node", instance) in self.world.pending)


class FakeGroupRecords:
    def __init__(self, world: World) -> None:
        self.world = world

    def get(self, group: str) -> StoredGroup | None:
        self.world.called("group_records.get", group)
        facts, version = self.world.table.get(("group", group), (None, 0))
        return StoredGroup(facts, version) if facts is not None else None

    def put(self, stored: StoredGroup, *, wake: bool) -> None:
        self.world.called("group_records.put", stored.facts.group)
        image = group_item(stored.facts, stored.version + 1, wake)
        self.world.written(("group", stored.facts.group), stored.facts, stored.version, image)

    def of_cluster(self, cluster: str) -> Mapping[str, StoredGroup]:
        self.world.called("group_records.of_cluster", cluster)
        groups = {name: StoredGroup(*entry) for (kind, name), entry in self.world.table.items() if kind == "group"}
        return {
            name: group
            for name, group in groups.items()
            if group.facts.named is not None and group.facts.named.cluster == cluster
        }


class FakeJobs:
    def __init__(self, world: World) -> None:
        self.world = world

    def get(self, cluster: str) -> tuple[JobFacts | None, int]:
        self.world.called("jobs.get", cluster)
        return self.world.table.get(("job", cluster), (None, 0))

    def put(self, cluster: str, job: JobFacts, version: int, *, wake: bool) -> None:
        self.world.called("jobs.put", cluster)
        self.world.written(("job", cluster), job, version, job_item(cluster, job, version + 1, wake))


class FakeClusters:
    def __init__(self, world: World) -> None:
        self.world = world

    def get(self, cluster: str) -> StoredMembership:
        self.world.called("clusters.get", cluster)
        stored, version = self.world.table.get(("cluster", cluster), (StoredMembership(Membership(), 0, 0), 0))
        return replace(stored, version=version)

    def put(self, cluster: str, stored: StoredMembership) -> None:
        self.world.called("clusters.put", cluster)
        image = {"pk": {"S": f"cluster#{cluster}"}, "wake": {"BOOL": False}}
        self.world.written(("cluster", cluster), stored, stored.version, image)

    def turn(self, cluster: str) -> StoredTurn:
        self.world.called("clusters.turn", cluster)
        turn, version = self.world.table.get(("turn", cluster), (StoredTurn(), 0))
        return replace(turn, version=version)

    def put_turn(self, cluster: str, turn: StoredTurn) -> None:
        self.world.called("clusters.put_turn", cluster)
        self.world.written(("turn", cluster), turn, turn.version, turn_item(cluster, turn, turn.version + 1))

    def tick(self, cluster: str, at: float, *, surveyed: bool) -> None:
        self.world.called("clusters.tick", cluster)
        self.world.stream.append({"NewImage": tick_item(cluster, at, surveyed)})

    def record(self, cluster: str, at: float, entries: Sequence[Entry]) -> None:
        self.world.called("clusters.record", cluster)
        self.world.trail.extend(entry.fields() for entry in entries)
        self.world.entries += [(cluster, TrailEntry(at, entry)) for entry in entries]

    def trail(self, cluster: str, since: float) -> Sequence[TrailEntry]:
        self.world.called("clusters.trail", cluster)
        return [entry for name, entry in self.world.entries if name == cluster and entry.at >= since]

    def members_item_key(self, cluster: str) -> str:
        return f"cluster#{cluster}/target"
