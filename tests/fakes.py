"""A world in memory that implements the controller's ports: table with stream, EC2, Auto Scaling, parameters, a clock
that moves only when told.

Faults are set by tests: `world.failing` maps an operation's name to the errors its next calls raise.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dyntrain.controller.adapters.items import wake_of
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.contract.errors import Conflict
from dyntrain.controller.contract.messages import (
    BASE_TAG,
    OWNER_TAG,
    STATUS_TAG,
    ClusterPolicy,
    Target,
    launch_template_name,
)
from dyntrain.controller.contract.reports import (
    NODE_DETAIL_TYPES,
    JobMember,
    JobReport,
)
from dyntrain.controller.core.planning import Decision, decide
from dyntrain.controller.core.records.facts import InstanceState, Phase, Transition
from dyntrain.controller.core.views.view import Rules
from dyntrain.controller.loops.converge import converge, found_groups
from dyntrain.controller.loops.intake import IntakeOutcome, take_in
from dyntrain.controller.loops.ports import Ports, TrailEntry
from dyntrain.controller.loops.registry import Registry
from dyntrain.controller.loops.resync import ResyncResult, resync
from fake_aws import START, FakeGroups, FakeInstances, FakeMetrics, FakeParameters, Machine, Member
from fake_table import FakeClusters, FakeGroupRecords, FakeJobs, FakeNodes

ELASTIC = ELASTIC_TAG


def instance_id(number: int) -> str:
    return f"i-{number:017x}"


class World:
    """Everything outside the controller, plus shorthands to make things happen and to look at the outcome."""

    def __init__(self, *clusters: str, **policy: Any) -> None:
        self.now = START + 1000.0
        self.table: dict[tuple[str, str], tuple[Any, int]] = {}
        self.stream: list[dict[str, Any]] = []
        self.pending: set[tuple[str, str]] = set()  # items whose last write woke the stream
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
        self.suspended: set[str] = set()
        self.group_stacks: dict[str, str] = {}
        self.metrics: list[tuple[str, str, int]] = []
        self.gauges: dict[str, dict[str, float]] = {}
        self.hidden: set[str] = set()
        self.refusing: dict[str, str] = {}
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
        """Every effect and read passes here: it is recorded, an arranged interference runs, and an arranged failure is
        raised.
        """
        self.calls.append((name, *arguments))
        if self.before.get(name):
            self.before[name].pop(0)()
        if self.failing.get(name):
            raise self.failing[name].pop(0)

    def tagged(self, instance: str, key: str, value: str) -> None:
        """By the controller."""
        self.machines[instance].tags[key] = value

    def shown(self, instance: str) -> Machine:
        """The instance as describe calls show it: here without lag."""
        return self.machines[instance]

    def count(self, name: str) -> int:
        return sum(call[0] == name for call in self.calls)

    # ---- making things happen

    def launch(
        self,
        number: int,
        cluster: str = "demo",
        *,
        base: bool = False,
        owned: bool = True,
        elastic: bool = True,
        **tags: str,
    ) -> str:
        """An instance that runs; no event tells of it. `owned`: launched from the cluster's template."""
        instance = instance_id(number)
        if owned:
            tags[OWNER_TAG] = cluster
        if base:
            tags[BASE_TAG] = "true"
        elif elastic:
            tags[ELASTIC_TAG.of(cluster)] = ""
        template = launch_template_name(cluster) if owned else None
        self.machines[instance] = Machine(tags=tags, launched_at=self.now, template=template)
        return instance

    def member(self, number: int, cluster: str = "demo", phase: Phase = "launching", **launch: Any) -> str:
        instance = self.launch(number, cluster, owned=False, **launch)
        self.membership[instance] = Member(f"{cluster}-workers", phase, "launch" if phase == "launching" else None)
        return instance

    def event(
        self, source: str, kind: str, detail: Mapping[str, Any], resource: str = "", at: float | None = None
    ) -> dict[str, Any]:
        moment = datetime.fromtimestamp(self.now if at is None else at, UTC).isoformat().replace("+00:00", "Z")
        envelope = {
            "version": "0",
            "id": f"event-{next(self._events)}",
            "account": "111122223333",
            "region": "eu-central-1",
            "time": moment,
        }
        return {
            **envelope,
            "source": source,
            "detail-type": kind,
            "resources": [resource] if resource else [],
            "detail": dict(detail),
        }

    def tag_event(
        self,
        instance: str,
        version: float | str,
        tags: Mapping[str, str],
        changed: Sequence[str],
        at: float | None = None,
    ) -> dict[str, Any]:
        detail = {
            "service": "ec2",
            "resource-type": "instance",
            "version": version,
            "changed-tag-keys": list(changed),
            "tags": dict(tags),
        }
        return self.event(
            "aws.tag",
            "Tag Change on Resource",
            detail,
            f"arn:aws:ec2:eu-central-1:111122223333:instance/{instance}",
            at,
        )

    def tag(self, instance: str, cluster: str = "demo", present: bool = True) -> dict[str, Any]:
        """Add or remove the elastic tag, as a person does; returns the event."""
        machine = self.machines[instance]
        if present:
            machine.tags[ELASTIC_TAG.of(cluster)] = ""
        else:
            machine.tags.pop(ELASTIC_TAG.of(cluster), None)
        machine.tag_version += 1
        return self.tag_event(instance, machine.tag_version, machine.tags, [ELASTIC_TAG.of(cluster)])

    def state_event(self, instance: str, state: InstanceState, at: float | None = None) -> dict[str, Any]:
        return self.event(
            "aws.ec2", "EC2 Instance State-change Notification", {"instance-id": instance, "state": state}, at=at
        )

    def hook_event(
        self,
        instance: str,
        transition: Transition,
        token: str,
        cluster: str = "demo",
        at: float | None = None,
        **more: str,
    ) -> dict[str, Any]:
        detail = {
            "LifecycleActionToken": token,
            "AutoScalingGroupName": f"{cluster}-workers",
            "LifecycleHookName": f"{cluster}-{transition}",
            "EC2InstanceId": instance,
            "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING"
            if transition == "launch"
            else "autoscaling:EC2_INSTANCE_TERMINATING",
            **more,
        }
        return self.event("aws.autoscaling", f"EC2 Instance-{transition} Lifecycle Action", detail, at=at)

    def report(
        self,
        instance: str,
        outcome: str = "prepared",
        cluster: str = "demo",
        attempt: int = 1,
        at: float | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        moment = self.now if at is None else at
        detail = {
            "cluster": cluster,
            "instance_id": instance,
            "private_ip": "10.0.0.7",
            "attempt": attempt,
            "outcome": outcome,
            "at": moment,
            **more,
        }
        return self.event("dyntrain.node", NODE_DETAIL_TYPES[outcome], detail, instance, at)

    def job_event(
        self,
        *active: str,
        forming: Sequence[str] = (),
        revision: int = 0,
        state: str = "running",
        cluster: str = "demo",
        **more: Any,
    ) -> dict[str, Any]:
        members = [
            JobMember(instance_id=i, rank=n, active=i in active, joined_epoch=0, joined_at=self.now)
            for n, i in enumerate([*active, *forming])
        ]
        fields = {
            "cluster": cluster,
            "job": "job-1",
            "state": state,
            "started_at": START,
            "sequence": next(self._sequence),
            "generation": 1,
        }
        report = JobReport(**{**fields, "revision": revision, "members": tuple(members), **more})
        return self.event("dyntrain.coordinator", report.detail_type, report.model_dump(mode="json"))

    # ---- running the controller

    def take_in(self, *events: Mapping[str, Any]) -> list[IntakeOutcome]:
        return [take_in(self.ports, event, ELASTIC) for event in events]

    def settle(self, batches: int = 20) -> list[Decision]:
        """Run converge on what the stream holds until it is quiet. Raises AssertionError when it never is."""
        decisions: list[Decision] = []
        for _ in range(batches):
            records, self.stream = [record for record in self.stream if record["NewImage"]["wake"]["BOOL"]], []
            if not records:
                return decisions
            decisions += converge(self.ports, self.registry, wake_of(records), ELASTIC)
        raise AssertionError("converge keeps waking itself")

    def hear(self, *events: Mapping[str, Any]) -> list[IntakeOutcome]:
        outcomes = self.take_in(*events)
        self.settle()
        return outcomes

    def resync(self) -> ResyncResult:
        result = resync(self.ports, self.registry, ELASTIC)
        self.settle()
        return result

    def wait(self, seconds: float) -> None:
        self.now += seconds

    # ---- looking

    def decision(self, cluster: str = "demo") -> Decision:
        """What the stored facts mean now."""
        facts = [node.facts for node in self.ports.nodes.of_cluster(cluster).values()]
        stored = self.ports.clusters.get(cluster)
        return decide(
            facts, stored.membership, self.ports.jobs.get(cluster)[0], self.rules(cluster), self.now, stored.published
        )

    def rules(self, cluster: str = "demo") -> Rules:
        policy = self.registry.policy(cluster)
        assert policy is not None, cluster
        return Rules(policy, ELASTIC, found_groups(self.ports, self.registry, cluster))

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
        (self.pending.add if image["wake"]["BOOL"] else self.pending.discard)(key)
        self.stream.append({"NewImage": image})


def running_cluster(elastic: int = 1, **policy) -> tuple[World, str, list[str]]:
    """A job that runs on a master and some elastic workers, all of them ADDED."""
    world = World(**policy)
    master = world.launch(1000, base=True, NodeType="Master")
    workers = [world.launch(number) for number in range(1, elastic + 1)]
    world.hear(world.report(master))
    for worker in workers:
        world.wait(1)
        world.hear(world.tag(worker), world.report(worker))
    world.wait(1 if workers else 0)
    world.hear(world.job_event(master, *workers, revision=world.target().revision))
    return world, master, workers
