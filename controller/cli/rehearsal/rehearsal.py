"""Replay recorded events through the controller's rules, intake and converge in memory, and return the reaction.

All events are taken in first; then converge runs until the table's stream is empty. The result must not depend on the
order of the events, which `--shuffle` checks by permutations.
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

MAX_PASSES = 20  # of converge
# if several handlers take an event in, the first outcome in this order is shown
_OUTCOME_ORDER = (
    "applied",
    "stale",
    "quarantined",
    "unchanged",
    "ignored",
)


@dataclass(frozen=True)
class ReplayResult:
    """The result of a replay. `events`: outcomes in the order of the records; `summary`: the state afterwards."""

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
) -> ReplayResult:
    memory = Memory(policy, elastic, now)
    ports = memory.ports()
    events = [_take_in(record, matching, memory, elastic) for record in records]
    _recall_target(memory)
    registry = Registry(ports.parameters, ports.clock)
    actions: list[Action] = []
    wake = memory.take_wake(tick=True)
    for _ in range(MAX_PASSES):
        if wake is None:
            break
        for decision in converge(ports, registry, wake, elastic):
            actions += decision.actions
        wake = memory.take_wake()
    return ReplayResult(events, _summary(memory, registry, actions))


def differing_permutations(
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


def _take_in(record: Record, matching: Matcher, memory: Memory, elastic: ElasticTag) -> dict[str, Any]:
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
        return {**line, "outcome": "ignored", "reason": "no rule matches the event"}
    outcomes = []
    for _handler in line["matched"]:
        try:
            outcomes.append(take_in(memory.ports(), record.event, elastic))
        except ControllerError as error:
            return {**line, "reason": str(error)}
    first_outcome = min(outcomes, key=lambda outcome: _OUTCOME_ORDER.index(outcome.kind))
    return {
        **line,
        "outcome": first_outcome.kind,
        "reason": first_outcome.reason,
        "instance": first_outcome.instance or line["instance"],
    }


def _instance_in(event: Mapping[str, Any]) -> str:
    """The instance id in the event's payload, or ""."""
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
    """Restore the target from the job's last report, so that the decisions know the current members."""
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
