"""Feed recorded events through the rules, intake and converge in memory, and report the controller's reaction.

All events are taken in first, then the stream is converged until it is quiet: the result must not depend on the order
of the events, which the permutations of `--shuffle` check.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dyntrain.controller.cli.rehearsal.memory import Memory
from dyntrain.controller.cli.rehearsal.recorded import Record
from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import ControllerError
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.decisions.actions import Action, PublishTarget
from dyntrain.controller.core.planning import decide
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.core.views.view import Rules
from dyntrain.controller.loops.converge import converge, found_groups
from dyntrain.controller.loops.intake import take_in
from dyntrain.controller.loops.registry import Registry

Matcher = Callable[[Mapping[str, Any]], list[str]]

PASSES = 20
# of several handlers' outcomes, the first in this order is shown
_OF_HANDLERS = (
    "applied",
    "stale",
    "quarantined",
    "unchanged",
    "ignored",
)


@dataclass(frozen=True)
class Replayed:
    """The result. `events` in the order they were fed; `summary` as `dyntrain replay` prints it."""

    events: list[dict[str, Any]]
    summary: dict[str, Any]

    @property
    def outcome(self) -> tuple[dict[str, str], list[str]]:
        """The part of the result that must not depend on the order of events."""
        return {instance: node["status"] for instance, node in self.summary["nodes"].items()}, self.summary["target"][
            "members"
        ]


def replay(
    records: Sequence[Record], matching: Matcher, policy: ClusterPolicy, elastic: ElasticTag, now: float
) -> Replayed:
    memory = Memory(policy, elastic, now)
    ports = memory.ports()
    events = [_fed(record, matching, memory, elastic) for record in records]
    _recall_target(memory)
    registry = Registry(ports.parameters, ports.clock)
    actions: list[Action] = []
    wake = memory.take_wake(tick=True)
    for _ in range(PASSES):
        if wake is None:
            break
        for decision in converge(ports, registry, wake, elastic):
            actions += decision.actions
        wake = memory.take_wake()
    return Replayed(events, _summary(memory, registry, actions))


def differing(
    records: Sequence[Record],
    matching: Matcher,
    policy: ClusterPolicy,
    elastic: ElasticTag,
    now: float,
    seed: int,
    times: int,
) -> list[int]:
    """Numbers of the permutations (with duplicates) that lead to other statuses or members than the recorded order."""
    expected = replay(records, matching, policy, elastic, now).outcome
    generator = random.Random(seed)
    numbers = []
    for number in range(times):
        shuffled = [*records, *(record for record in records if generator.random() < 0.5)]
        generator.shuffle(shuffled)
        if replay(shuffled, matching, policy, elastic, now).outcome != expected:
            numbers.append(number)
    return numbers


def _fed(record: Record, matching: Matcher, memory: Memory, elastic: ElasticTag) -> dict[str, Any]:
    line: dict[str, Any] = {
        "file": record.file,
        "matched": [],
        "outcome": "quarantined",
        "reason": record.problem,
        "instance": "",
    }
    if record.event is None:
        return line
    line["instance"] = _instance_in(record.event)
    line["matched"] = matching(record.event)
    if not line["matched"]:
        return {**line, "outcome": "ignored", "reason": "no rule matches it"}
    outcomes = []
    for _handler in line["matched"]:
        try:
            outcomes.append(take_in(memory.ports(), record.event, elastic))
        except ControllerError as error:
            return {**line, "reason": str(error)}
    strongest = min(outcomes, key=lambda outcome: _OF_HANDLERS.index(outcome.kind))
    return {
        **line,
        "outcome": strongest.kind,
        "reason": strongest.reason,
        "instance": strongest.instance or line["instance"],
    }


def _instance_in(event: Mapping[str, Any]) -> str:
    """The instance that the payload names, "" for none."""
    detail = event.get("detail")
    if isinstance(detail, dict):
        for key in ("instance-id", "instance_id", "EC2InstanceId"):
            if isinstance(detail.get(key), str) and detail[key]:
                return str(detail[key])
    resources = event.get("resources")
    arns = (
        [name for name in resources if isinstance(name, str) and "instance/" in name]
        if isinstance(resources, list)
        else []
    )
    return arns[0].rpartition("instance/")[2] if arns else ""


def _recall_target(memory: Memory) -> None:
    """Restore the target that the job's last report obeys: its members can then be held by the minimum, or leave."""
    cluster = memory.policy.cluster
    ports = memory.ports()
    job_facts, _version = ports.jobs.get(cluster)
    if job_facts is None or not job_facts.report.members:
        return
    members = tuple(member.instance_id for member in job_facts.report.members)
    stored = ports.clusters.get(cluster)
    ports.clusters.put(
        cluster, replace(stored, membership=Membership(revision=job_facts.report.revision, members=members))
    )


def _summary(memory: Memory, registry: Registry, actions: Sequence[Action]) -> dict[str, Any]:
    ports, cluster = memory.ports(), memory.policy.cluster
    stored = ports.clusters.get(cluster)
    facts = [node.facts for node in ports.nodes.of_cluster(cluster).values()]
    rules = Rules(memory.policy, memory.elastic, found_groups(ports, registry, cluster))
    decision = decide(facts, stored.membership, ports.jobs.get(cluster)[0], rules, memory.now, stored.published)
    nodes = {
        node.view.instance: {"status": node.standing.status, "reason": str(node.standing.reason)}
        for node in decision.nodes
    }
    membership = decision.membership
    return {
        "nodes": dict(sorted(nodes.items())),
        "target": {"revision": membership.revision, "members": list(membership.members)},
        "actions": [_action(action) for action in actions],
    }


def _action(action: Action) -> dict[str, Any]:
    if isinstance(action, PublishTarget):
        return {
            "action": "PublishTarget",
            "revision": action.membership.revision,
            "members": list(action.membership.members),
        }
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(action).items()}
    return {"action": type(action).__name__, **fields}
