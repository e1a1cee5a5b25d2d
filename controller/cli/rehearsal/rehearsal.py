"""Replay recorded events in memory through the controller's event rules and the loops `intake` and `converge`.

At the beginning of a replay, all events are stored as facts. After the last event, `converge` runs until the table's
stream is empty. The result must not depend on the order of the events. The option `--shuffle` replays permutations
of the events to check that the result does not depend on the order.
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

Matcher = Callable[[Mapping[str, Any]], list[str]]  # a function from an event to the names of its handlers

MAX_CONVERGE_PASSES = 20
# if several handlers take an event in, the first outcome in this order is shown
_OUTCOME_ORDER = ("applied", "stale", "quarantined", "unchanged", "ignored")


@dataclass(frozen=True)
class ReplayResult:
    """The result of a replay of recorded events."""

    events: list[dict[str, Any]]  # the outcome of each event, in the order of the records
    summary: dict[str, Any]  # the cluster's state after the replay

    @property
    def outcome(self) -> tuple[dict[str, str], list[str]]:
        """The part of the replay's result that must not depend on the order of the events."""
        return {instance: node["status"] for instance, node in self.summary["nodes"].items()}, self.summary["target"][
            "members"
        ]


def replay_records(
    records: Sequence[Record], matching: Matcher, policy: ClusterPolicy, elastic: ElasticTag, now: float
) -> ReplayResult:
    memory = Memory(policy, elastic, now)
    ports = memory.ports()
    event_rows = [_replay_record(record, matching, memory, elastic) for record in records]
    _restore_target(memory)
    registry = Registry(ports.parameters, ports.clock)
    actions: list[Action] = []
    stream_changes = memory.take_changes(tick=True)
    for _ in range(MAX_CONVERGE_PASSES):
        if stream_changes is None:
            break
        for decision in converge(ports, registry, stream_changes, elastic):
            actions += decision.actions
        stream_changes = memory.take_changes()
    return ReplayResult(event_rows, _summary(memory, registry, actions))


def differing_permutations(
    records: Sequence[Record],
    matching: Matcher,
    policy: ClusterPolicy,
    elastic: ElasticTag,
    now: float,
    seed: int,
    times: int,
) -> list[int]:
    """Replay `times` random permutations of the events, and return the numbers of the permutations with a different
    outcome. A permutation also contains duplicates of events. Each outcome is compared with the outcome of the recorded
    order.
    """
    expected_outcome = replay_records(records, matching, policy, elastic, now).outcome
    random_generator = random.Random(seed)
    permutation_numbers = []
    for permutation_number in range(times):
        shuffled_records = [*records, *(record for record in records if random_generator.random() < 0.5)]
        random_generator.shuffle(shuffled_records)
        if replay_records(shuffled_records, matching, policy, elastic, now).outcome != expected_outcome:
            permutation_numbers.append(permutation_number)
    return permutation_numbers


def _replay_record(record: Record, matching: Matcher, memory: Memory, elastic: ElasticTag) -> dict[str, Any]:
    event_row: dict[str, Any] = {
        "file": record.file,
        "matched": [],
        "outcome": "quarantined",
        "reason": record.problem,
        "instance": "",
    }
    if record.event is None:
        return event_row
    event_row["instance"] = _instance_id_in(record.event)
    event_row["matched"] = matching(record.event)
    if not event_row["matched"]:
        return {**event_row, "outcome": "ignored", "reason": "no rule matches the event"}
    intake_outcomes = []
    for _handler in event_row["matched"]:
        try:
            intake_outcomes.append(take_in(memory.ports(), record.event, elastic))
        except ControllerError as error:
            return {**event_row, "reason": str(error)}
    shown_outcome = min(intake_outcomes, key=lambda outcome: _OUTCOME_ORDER.index(outcome.kind))
    return {
        **event_row,
        "outcome": shown_outcome.kind,
        "reason": shown_outcome.reason,
        "instance": shown_outcome.instance or event_row["instance"],
    }


def _instance_id_in(event: Mapping[str, Any]) -> str:
    """The instance id in the event's payload, or "" without an id."""
    event_detail = event.get("detail")
    if isinstance(event_detail, dict):
        for key in ("instance-id", "instance_id", "EC2InstanceId"):
            if isinstance(event_detail.get(key), str) and event_detail[key]:
                return str(event_detail[key])
    resource_names = event.get("resources")
    instance_arns = (
        [
            resource_name
            for resource_name in resource_names
            if isinstance(resource_name, str) and "instance/" in resource_name
        ]
        if isinstance(resource_names, list)
        else []
    )
    return instance_arns[0].rpartition("instance/")[2] if instance_arns else ""


def _restore_target(memory: Memory) -> None:
    """Restore the target membership from the job's last report, so that decisions know the current members."""
    cluster = memory.policy.cluster
    ports = memory.ports()
    job_facts, _version = ports.jobs.get(cluster)
    if job_facts is None or not job_facts.report.members:
        return
    member_ids = tuple(member.instance_id for member in job_facts.report.members)
    stored_membership = ports.clusters.get(cluster)
    ports.clusters.put(
        cluster,
        replace(stored_membership, membership=Membership(revision=job_facts.report.revision, members=member_ids)),
    )


def _summary(memory: Memory, registry: Registry, actions: Sequence[Action]) -> dict[str, Any]:
    ports, cluster = memory.ports(), memory.policy.cluster
    stored_membership = ports.clusters.get(cluster)
    node_facts = [node.facts for node in ports.nodes.of_cluster(cluster).values()]
    rules = Rules(memory.policy, memory.elastic, found_groups(ports, registry, cluster))
    decision = decide(
        node_facts,
        stored_membership.membership,
        ports.jobs.get(cluster)[0],
        rules,
        memory.now,
        stored_membership.published,
    )
    node_rows = {
        node.view.instance: {"status": node.standing.status, "reason": str(node.standing.reason)}
        for node in decision.nodes
    }
    membership = decision.membership
    return {
        "nodes": dict(sorted(node_rows.items())),
        "target": {"revision": membership.revision, "members": list(membership.members)},
        "actions": [_action_data(action) for action in actions],
    }


def _action_data(action: Action) -> dict[str, Any]:
    if isinstance(action, PublishTarget):
        return {
            "action": "PublishTarget",
            "revision": action.membership.revision,
            "members": list(action.membership.members),
        }
    action_fields = {
        field: list(value) if isinstance(value, tuple) else value for field, value in asdict(action).items()
    }
    return {"action": type(action).__name__, **action_fields}
