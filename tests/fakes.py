"""A world in memory that implements the controller's ports: table with stream, EC2, Auto Scaling, parameters, a clock that moves only when told.

Faults are set by tests: `world.failing` maps an operation's name to the errors its next calls raise.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from controller.adapters.items import group_item, job_item, node_item, tick_item, wake_of
from controller.contract import BASE_TAG, OWNER_TAG, STATUS_TAG, ClusterPolicy, JobMember, JobReport, Target, elastic_tag
from controller.converge import converge, found_groups
from controller.errors import Conflict, Refused
from controller.facts import Phase, State, Transition
from controller.groups import GroupSize
from controller.intake import Outcome, take_in
from controller.job import JobFacts
from controller.planning import Decision, decide
from controller.ports import Ports, SeenInstance, SeenMember, StoredGroup, StoredMembership, StoredNode, TrailEntry
from controller.registry import Registry
from controller.resync import Resynced, resync
from controller.target import Membership, as_parameter
from controller.view import Rules

SUFFIX = "-aws-dl-cfn-elastic-worker"
START = 1_700_000_000.0


def instance_id(number: int) -> str:
    return f"i-{number:017x}"


@dataclass
class Machine:
    """An EC2 instance as the fake EC2 knows it."""

    state: State = "running"
    tags: dict[str, str] = field(default_factory=dict)
    launched_at: float = START
    tag_version: int = 0


@dataclass
class Member:
    group: str
    phase: Phase = "in_service"
    waits: Transition | None = None
    protected: bool = False


class World:
    """Everything outside the controller, plus shorthands to make things happen and to look at the outcome."""

    def __init__(self, *clusters: str, **policy: Any) -> None:
        self.now = START + 1000.0
        self.table: dict[tuple[str, str], tuple[Any, int]] = {}
        self.stream: list[dict[str, Any]] = []
        self.machines: dict[str, Machine] = {}
        self.membership: dict[str, Member] = {}
        self.parameters: dict[str, str] = {}
        self.calls: list[tuple[str, ...]] = []
        self.failing: dict[str, list[Exception]] = {}
        self.before: dict[str, list[Any]] = {}
        self.trail: list[Mapping[str, str]] = []
        self.entries: list[tuple[str, TrailEntry]] = []
        self.stale_tokens: set[str] = set()
        self.limits: dict[str, tuple[int, int, int]] = {}
        self.group_tags: dict[str, str] = {}
        self.metrics: list[tuple[str, str, int]] = []
        self.hidden: set[str] = set()
        self._events = itertools.count(1)
        self._sequence = itertools.count(1)
        for cluster in clusters or ("demo",):
            self.register(ClusterPolicy(**{"cluster": cluster, "groups": (f"{cluster}-workers",), **policy}))
        self.ports = Ports(
            nodes=FakeNodes(self),
            jobs=FakeJobs(self),
            clusters=FakeClusters(self),
            parameters=FakeParameters(self),
            instances=FakeInstances(self),
            groups=FakeGroups(self),
            clock=lambda: self.now,
            group_records=FakeGroupRecords(self),
            metrics=FakeMetrics(self),
        )
        self.registry = Registry(self.ports.parameters, self.ports.clock)

    def register(self, policy: ClusterPolicy) -> None:
        self.parameters[f"/dyntrain/{policy.cluster}/policy"] = policy.model_dump_json()

    def called(self, name: str, *arguments: str) -> None:
        """Every effect and read passes here: it is recorded, an arranged interference runs, and an arranged failure is raised."""
        self.calls.append((name, *arguments))
        if self.before.get(name):
            self.before[name].pop(0)()
        if self.failing.get(name):
            raise self.failing[name].pop(0)

    def count(self, name: str) -> int:
        return sum(call[0] == name for call in self.calls)

    # ---- making things happen

    def launch(self, number: int, cluster: str = "demo", *, base: bool = False, owned: bool = True, elastic: bool = True, **tags: str) -> str:
        """An instance that runs; no event tells of it."""
        instance = instance_id(number)
        if owned:
            tags[OWNER_TAG] = cluster
        if base:
            tags[BASE_TAG] = "true"
        elif elastic:
            tags[elastic_tag(cluster)] = ""
        self.machines[instance] = Machine(tags=tags, launched_at=self.now)
        return instance

    def member(self, number: int, cluster: str = "demo", phase: Phase = "launching", **launch: Any) -> str:
        instance = self.launch(number, cluster, owned=False, **launch)
        self.membership[instance] = Member(f"{cluster}-workers", phase, "launch" if phase == "launching" else None)
        return instance

    def event(self, source: str, kind: str, detail: Mapping[str, Any], resource: str = "", at: float | None = None) -> dict[str, Any]:
        moment = datetime.fromtimestamp(self.now if at is None else at, UTC).isoformat().replace("+00:00", "Z")
        envelope = {"version": "0", "id": f"event-{next(self._events)}", "account": "111122223333", "region": "eu-central-1", "time": moment}
        return {**envelope, "source": source, "detail-type": kind, "resources": [resource] if resource else [], "detail": dict(detail)}

    def tag_event(
        self, instance: str, version: float | str, tags: Mapping[str, str], changed: Sequence[str], at: float | None = None
    ) -> dict[str, Any]:
        detail = {"service": "ec2", "resource-type": "instance", "version": version, "changed-tag-keys": list(changed), "tags": dict(tags)}
        return self.event("aws.tag", "Tag Change on Resource", detail, f"arn:aws:ec2:eu-central-1:111122223333:instance/{instance}", at)

    def tag(self, instance: str, cluster: str = "demo", present: bool = True) -> dict[str, Any]:
        """Add or remove the elastic tag, as a person does; returns the event."""
        machine = self.machines[instance]
        if present:
            machine.tags[elastic_tag(cluster)] = ""
        else:
            machine.tags.pop(elastic_tag(cluster), None)
        machine.tag_version += 1
        return self.tag_event(instance, machine.tag_version, machine.tags, [elastic_tag(cluster)])

    def state_event(self, instance: str, state: State, at: float | None = None) -> dict[str, Any]:
        return self.event("aws.ec2", "EC2 Instance State-change Notification", {"instance-id": instance, "state": state}, at=at)

    def hook_event(
        self, instance: str, transition: Transition, token: str, cluster: str = "demo", at: float | None = None, **more: str
    ) -> dict[str, Any]:
        detail = {
            "LifecycleActionToken": token,
            "AutoScalingGroupName": f"{cluster}-workers",
            "LifecycleHookName": f"{cluster}-{transition}",
            "EC2InstanceId": instance,
            "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING" if transition == "launch" else "autoscaling:EC2_INSTANCE_TERMINATING",
            **more,
        }
        return self.event("aws.autoscaling", f"EC2 Instance-{transition} Lifecycle Action", detail, at=at)

    def report(
        self, instance: str, outcome: str = "prepared", cluster: str = "demo", attempt: int = 1, at: float | None = None, **more: Any
    ) -> dict[str, Any]:
        from controller.contract import NODE_DETAIL_TYPES

        moment = self.now if at is None else at
        detail = {"cluster": cluster, "instance_id": instance, "private_ip": "10.0.0.7", "attempt": attempt, "outcome": outcome, "at": moment, **more}
        return self.event("dyntrain.node", NODE_DETAIL_TYPES[outcome], detail, instance, at)

    def job_event(
        self, *active: str, forming: Sequence[str] = (), revision: int = 0, state: str = "running", cluster: str = "demo", **more: Any
    ) -> dict[str, Any]:
        members = [
            JobMember(instance_id=i, rank=n, active=i in active, joined_epoch=0, joined_at=self.now) for n, i in enumerate([*active, *forming])
        ]
        fields = {"cluster": cluster, "job": "job-1", "state": state, "started_at": START, "sequence": next(self._sequence), "generation": 1}
        report = JobReport(**{**fields, "revision": revision, "members": tuple(members), **more})
        return self.event("dyntrain.coordinator", report.detail_type, report.model_dump(mode="json"))

    # ---- running the controller

    def take_in(self, *events: Mapping[str, Any]) -> list[Outcome]:
        return [take_in(self.ports, event, SUFFIX) for event in events]

    def settle(self, batches: int = 20) -> list[Decision]:
        """Run converge on what the stream holds until it is quiet. Raises AssertionError when it never is."""
        decisions: list[Decision] = []
        for _ in range(batches):
            records, self.stream = [record for record in self.stream if record["NewImage"]["wake"]["BOOL"]], []
            if not records:
                return decisions
            decisions += converge(self.ports, self.registry, wake_of(records), SUFFIX)
        raise AssertionError("converge keeps waking itself")

    def hear(self, *events: Mapping[str, Any]) -> list[Outcome]:
        outcomes = self.take_in(*events)
        self.settle()
        return outcomes

    def resync(self) -> Resynced:
        result = resync(self.ports, self.registry, SUFFIX)
        self.settle()
        return result

    def wait(self, seconds: float) -> None:
        self.now += seconds

    # ---- looking

    def decision(self, cluster: str = "demo") -> Decision:
        """What the stored facts mean now."""
        facts = [node.facts for node in self.ports.nodes.of_cluster(cluster).values()]
        stored = self.ports.clusters.get(cluster)
        return decide(facts, stored.membership, self.ports.jobs.get(cluster)[0], self.rules(cluster), self.now, stored.published)

    def rules(self, cluster: str = "demo") -> Rules:
        policy = self.registry.policy(cluster)
        assert policy is not None, cluster
        return Rules(policy, SUFFIX, found_groups(self.ports, self.registry, cluster))

    def standing(self, instance: str, cluster: str = "demo") -> tuple[str, str]:
        standing = next(node.standing for node in self.decision(cluster).nodes if node.view.instance == instance)
        return standing.status, str(standing.reason)

    def status(self, instance: str, cluster: str = "demo") -> str:
        return self.standing(instance, cluster)[0]

    def mirror(self, instance: str) -> str | None:
        return self.machines[instance].tags.get(STATUS_TAG)

    def target(self, cluster: str = "demo") -> Target:
        return Target.model_validate_json(self.parameters[f"/dyntrain/{cluster}/target"])

    def written(self, key: tuple[str, str], value: Any, version: int, image: dict[str, Any]) -> None:
        """A conditional write of the fake table, with its stream record."""
        if self.table.get(key, (None, 0))[1] != version:
            raise Conflict(f"{key} is not at version {version}")
        self.table[key] = (value, version + 1)
        self.stream.append({"NewImage": image})


class FakeNodes:
    def __init__(self, world: World) -> None:
        self.world = world
        self.lagging: dict[str, StoredNode] = {}

    def get(self, instance: str) -> StoredNode | None:
        self.world.called("nodes.get", instance)
        facts, version = self.world.table.get(("node", instance), (None, 0))
        return StoredNode(facts, version) if facts is not None else None

    def get_many(self, instances: Iterable[str]) -> Mapping[str, StoredNode]:
        self.world.called("nodes.get_many")
        found = {instance: self.world.table.get(("node", instance)) for instance in instances}
        return {instance: StoredNode(*entry) for instance, entry in found.items() if entry is not None}

    def put(self, node: StoredNode, *, wake: bool, expires: float | None) -> None:
        self.world.called("nodes.put", node.facts.instance)
        image = node_item(node.facts, node.version + 1, wake, expires)
        self.world.written(("node", node.facts.instance), node.facts, node.version, image)

    def of_cluster(self, cluster: str) -> Mapping[str, StoredNode]:
        self.world.called("nodes.of_cluster", cluster)
        nodes = {name: StoredNode(*entry) for (kind, name), entry in self.world.table.items() if kind == "node"}
        nodes.update(self.lagging)
        return {name: node for name, node in nodes.items() if node.facts.named is not None and node.facts.named.cluster == cluster}


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

    def tick(self, cluster: str, at: float) -> None:
        self.world.called("clusters.tick", cluster)
        self.world.stream.append({"NewImage": tick_item(cluster, at)})

    def record(self, cluster: str, at: float, entries: Sequence[Mapping[str, str]]) -> None:
        self.world.called("clusters.record", cluster)
        self.world.trail.extend(entries)
        self.world.entries += [(cluster, TrailEntry(at, entry)) for entry in entries]

    def trail(self, cluster: str, since: float) -> Sequence[TrailEntry]:
        return [entry for name, entry in self.world.entries if name == cluster and entry.at >= since]

    def pointer(self, cluster: str) -> str:
        return f"cluster#{cluster}/target"


class FakeParameters:
    def __init__(self, world: World) -> None:
        self.world = world

    def policies(self) -> Mapping[str, str]:
        self.world.called("parameters.policies")
        return {name.split("/")[2]: text for name, text in self.world.parameters.items() if name.endswith("/policy")}

    def target(self, cluster: str) -> str | None:
        self.world.called("parameters.target", cluster)
        return self.world.parameters.get(f"/dyntrain/{cluster}/target")

    def put_target(self, cluster: str, target: Target, pointer: str) -> None:
        self.world.called("parameters.put_target", cluster, str(target.revision))
        text = as_parameter(target, pointer)
        assert len(text.encode()) <= 4096, "a standard parameter takes 4 KB"
        self.world.parameters[f"/dyntrain/{cluster}/target"] = text

    def put_policy(self, cluster: str, text: str, *, overwrite: bool) -> bool:
        self.world.called("parameters.put_policy", cluster)
        name = f"/dyntrain/{cluster}/policy"
        if name in self.world.parameters and not overwrite:
            return False
        self.world.parameters[name] = text
        return True

    def delete(self, cluster: str) -> Sequence[str]:
        self.world.called("parameters.delete", cluster)
        names = sorted(name for name in self.world.parameters if name.startswith(f"/dyntrain/{cluster}/"))
        for name in names:
            del self.world.parameters[name]
        return names


class FakeInstances:
    def __init__(self, world: World) -> None:
        self.world = world

    def tagged(self, keys: Iterable[str]) -> Sequence[SeenInstance]:
        self.world.called("instances.tagged")
        wanted = set(keys)
        return [self._seen(name) for name, machine in self.world.machines.items() if wanted & set(machine.tags) and name not in self.world.hidden]

    def by_id(self, instances: Iterable[str]) -> Sequence[SeenInstance]:
        self.world.called("instances.by_id")
        return [self._seen(name) for name in instances if name in self.world.machines and name not in self.world.hidden]

    def tag(self, instances: Sequence[str], key: str, value: str) -> Sequence[str]:
        self.world.called("instances.tag", key, value, *instances)
        for name in instances:
            if name in self.world.machines:
                self.world.machines[name].tags[key] = value
        return [name for name in instances if name not in self.world.machines]

    def terminate(self, instances: Sequence[str]) -> Sequence[str]:
        self.world.called("instances.terminate", *instances)
        for name in instances:
            if name in self.world.machines:
                self.world.machines[name].state = "shutting-down"
        return [name for name in instances if name not in self.world.machines]

    def _seen(self, name: str) -> SeenInstance:
        machine = self.world.machines[name]
        return SeenInstance(name, machine.state, dict(machine.tags), machine.launched_at, "10.0.0.7")


class FakeGroups:
    def __init__(self, world: World) -> None:
        self.world = world
        self.minimum_reached = False

    def members(self, groups: Iterable[str]) -> Sequence[SeenMember]:
        self.world.called("groups.members")
        wanted = set(groups)
        return [SeenMember(name, m.group, m.phase, m.waits, m.protected) for name, m in self.world.membership.items() if m.group in wanted]

    def hooks(self, group: str) -> Mapping[str, Transition]:
        self.world.called("groups.hooks", group)
        cluster = self.world.group_tags.get(group, group.removesuffix("-workers"))
        return {f"{cluster}-launch": "launch", f"{cluster}-terminate": "terminate"}

    def complete(self, instance: str, group: str, hook: str, token: str | None, result: Literal["CONTINUE", "ABANDON"]) -> bool:
        self.world.called("groups.complete", instance, hook, token or "", result)
        if token in self.world.stale_tokens:
            return False
        member = self.world.membership.get(instance)
        if member is not None:
            member.waits = None
        return True

    def heartbeat(self, instance: str, group: str, hook: str, token: str | None) -> bool:
        self.world.called("groups.heartbeat", instance, hook, token or "")
        return token not in self.world.stale_tokens

    def terminate(self, instance: str, group: str) -> None:
        self.world.called("groups.terminate", instance, group)
        if self.minimum_reached:
            raise Refused("ValidationError", f"{group} is at its minimum size")
        if instance in self.world.membership:
            self.world.membership[instance] = Member(group, "terminating", "terminate")

    def protect(self, instances: Sequence[str], group: str) -> None:
        self.world.called("groups.protect", group, *instances)
        for name in instances:
            if name in self.world.membership:
                self.world.membership[name].protected = True

    def tagged(self, key: str) -> Mapping[str, str]:
        self.world.called("groups.tagged", key)
        return dict(self.world.group_tags) if key == OWNER_TAG else {}

    def sizes(self, groups: Iterable[str]) -> Mapping[str, GroupSize]:
        self.world.called("groups.sizes", *groups)
        found = {}
        for group in groups:
            running = sum(member.group == group and member.phase in ("launching", "in_service") for member in self.world.membership.values())
            minimum, maximum, desired = self.world.limits.get(group, (0, 100, running))
            found[group] = GroupSize(minimum, maximum, desired, running)
        return found

    def set_desired(self, group: str, desired: int) -> None:
        self.world.called("groups.set_desired", group, str(desired))
        minimum, maximum, _ = self.world.limits.get(group, (0, 100, 0))
        if not minimum <= desired <= maximum:
            raise Refused("ValidationError", f"{desired} is not in {minimum}..{maximum} of {group}")
        self.world.limits[group] = (minimum, maximum, desired)


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
        return {name: group for name, group in groups.items() if group.facts.named is not None and group.facts.named.cluster == cluster}


class FakeMetrics:
    def __init__(self, world: World) -> None:
        self.world = world

    def count(self, name: str, cluster: str, value: int = 1) -> None:
        self.world.metrics.append((name, cluster, value))
