"""The state of a cluster and of one instance, derived from stored facts by the controller's own decision code. The
status shown for an instance is the status in the instance's tag.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dyntrain.controller.cli.answers.announced import announced_standing
from dyntrain.controller.cli.answers.ending import closing, ended_with_job, remaining_instances
from dyntrain.controller.cli.answers.provenance import origins
from dyntrain.controller.cli.answers.unmanaged import unmanaged_message
from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.decisions.actions import instances
from dyntrain.controller.core.decisions.status import NodeStatus
from dyntrain.controller.core.planning import Decision, decide
from dyntrain.controller.core.records.facts import NodeFacts
from dyntrain.controller.core.records.groups import Hold
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.records.registers import Fact
from dyntrain.controller.core.views.arbitration import Register, reads_that_count
from dyntrain.controller.core.views.view import Rules
from dyntrain.controller.loops.converge import cluster_of, found_groups
from dyntrain.controller.loops.ports import Ports
from dyntrain.controller.loops.registry import Registry


@dataclass(frozen=True)
class Snapshot:
    cluster: str
    decision: Decision
    job_facts: JobFacts | None
    at: float
    rules: Rules
    held: Mapping[str, Hold] = field(default_factory=dict)  # holds of launches, by group


def snapshot(ports: Ports, registry: Registry, cluster: str, elastic: ElasticTag) -> Snapshot:
    """Read the cluster's state by consistent reads, so that a later snapshot is never older. Raises GiveUp for an
    unregistered cluster.
    """
    policy = policy_of(registry, cluster)
    stored = ports.clusters.get(cluster)
    job_facts, _version = ports.jobs.get(cluster)
    stored_nodes = ports.nodes.of_cluster(cluster)
    living_ids = [instance for instance, node in stored_nodes.items() if not node.facts.terminated]
    nodes = [node.facts for node in {**stored_nodes, **ports.nodes.get_many(living_ids)}.values()]
    now = ports.clock()
    rules = Rules(policy, elastic, found_groups(ports, registry, cluster))
    records = {group: record for group in rules.groups if (record := ports.group_records.get(group)) is not None}
    holds = {group: record.facts.hold for group, record in records.items() if record.facts.hold is not None}
    return Snapshot(
        cluster,
        decide(nodes, stored.membership, job_facts, rules, now, stored.published),
        job_facts,
        now,
        rules,
        {group: hold for group, hold in holds.items() if hold.held},
    )


def policy_of(registry: Registry, cluster: str) -> ClusterPolicy:
    """The cluster's policy. Raises GiveUp for a cluster that is not registered, and for an invalid policy."""
    policy = registry.policy(cluster)
    if policy is None:
        problem = registry.problems().get(cluster)
        names = ", ".join(sorted(registry.all())) or "none"
        raise GiveUp(
            unmanaged_message(cluster, problem) if problem else f"no cluster {cluster!r} is registered (known: {names})"
        )
    return policy


def summary(snapshot: Snapshot, *, gone: bool = False) -> dict[str, Any]:
    """The data of `dyntrain status`. Terminated nodes are listed only with `gone`."""
    nodes = [
        _row(node, snapshot) for node in snapshot.decision.nodes if gone or announced_standing(node).status != "GONE"
    ]
    membership = snapshot.decision.membership
    return {
        "cluster": snapshot.cluster,
        "job": _job(snapshot),
        "stays": remaining_instances(snapshot.decision, snapshot.job_facts, snapshot.rules)
        if snapshot.decision.job.over
        else None,
        "closing": closing(snapshot.decision),
        "held": [
            {"group": group, "times": hold.times, "since": hold.at, "reason": hold.reason}
            for group, hold in sorted(snapshot.held.items())
        ],
        "again": _restart_advice(snapshot) if snapshot.decision.job.over else "",
        "ended": ended_with_job(snapshot.decision, snapshot.job_facts),
        "target": {
            "revision": membership.revision,
            "members": list(membership.members),
            "leave_by": membership.leave_by,
            "coordinator": membership.coordinator,
            "term": membership.term,
        },
        "nodes": sorted(
            nodes,
            key=lambda row: (not row["base"], row["rank"] if row["rank"] is not None else 1 << 30, row["instance"]),
        ),
    }


def explanation(snapshot: Snapshot, instance: str) -> dict[str, Any]:
    """The data of `dyntrain explain`: status, reason, and every fact with its source and time. Raises GiveUp for an
    unknown instance.
    """
    node = next((node for node in snapshot.decision.nodes if node.view.instance == instance), None)
    if node is None:
        raise GiveUp(f"the controller does not know {instance} in {snapshot.cluster}")
    action_names = [type(action).__name__ for action in snapshot.decision.actions if instance in instances(action)]
    view = node.view
    return {
        "cluster": snapshot.cluster,
        **_row(node, snapshot),
        "would_change": _would_change(node, snapshot),
        "next_change": node.standing.next_change,
        "pending_actions": action_names,
        "effective": {
            "tags": dict(view.tags) if view.tags is not None else None,
            "state": view.state,
            "group": view.group,
            "phase": view.phase,
            "owned": view.owned,
            "wanted": view.wanted,
            "prepared": view.prepared,
            "leave_by": view.leave_by,
        },
        "facts": _facts(view.facts),
        "origins": [asdict(origin) for origin in origins(view.facts)],
        "passed_over": _overridden_facts(view.facts, snapshot.rules),
    }


def _overridden_facts(facts: NodeFacts, rules: Rules) -> list[str]:
    """Text lines about facts without effect: reads too soon after an event, and events before a later read."""
    settling_seconds = rules.policy.settling_seconds
    reads = reads_that_count(facts, settling_seconds, rules.elastic_tag)
    pairs: tuple[tuple[Register, Fact | None, Fact | None], ...] = (
        ("tags", facts.tags_event, facts.tags_read),
        ("state", facts.state_event, facts.state_read),
        ("group", facts.group_event, facts.group_read),
    )
    lines = []
    for name, event, read in pairs:
        if event is None or read is None:
            continue
        if name in reads:
            lines.append(f"{name}_event: a later read counts")
        else:
            lines.append(f"{name}_read: it began within {settling_seconds:g} s after the event, which counts")
    return lines


def cluster_of_instance(ports: Ports, registry: Registry, instance: str) -> str:
    """The instance's cluster. Raises GiveUp when no fact about the instance names a cluster."""
    stored = ports.nodes.get(instance)
    if stored is None:
        raise GiveUp(f"the controller does not know {instance}; check the id and the region")
    cluster = cluster_of(ports, stored.facts, registry)
    if cluster is None:
        raise GiveUp(f"{instance} belongs to no registered cluster")
    return cluster


def _would_change(node: NodeStatus, snapshot: Snapshot) -> str:
    is_over = snapshot.decision.job.over
    advice = announced_standing(node).reason.would_change(node.view.base, is_over)
    return "; ".join(filter(None, (advice, _restart_advice(snapshot) if is_over else "")))


def _restart_advice(snapshot: Snapshot) -> str:
    """Advice on how to restart the job; "" for a closed cluster, and for a cluster without base nodes."""
    ending = snapshot.decision.ending
    has_base_nodes = any(node.view.base and not node.view.terminated for node in snapshot.decision.nodes)
    if not has_base_nodes or (ending is not None and ending.complete):
        return ""
    return f"`dyntrain cluster restart {snapshot.cluster}` begins the job again"


def _row(node: NodeStatus, snapshot: Snapshot) -> dict[str, Any]:
    report = snapshot.job_facts.report if snapshot.job_facts is not None else None
    member = (
        next((member for member in report.members if member.instance_id == node.view.instance), None)
        if report is not None and snapshot.decision.job.alive
        else None
    )
    ack, standing = node.view.facts.acks.status, announced_standing(node)
    preparation = node.view.preparation
    return {
        "instance": node.view.instance,
        "status": standing.status,
        "reason": str(standing.reason),
        "sentence": standing.reason.sentence_for(snapshot.decision.job.over),
        "detail": standing.detail,
        "base": node.view.base,
        "master": node.view.master,
        "generation": report.generation if report is not None and member is not None else None,
        "rank": member.rank if member is not None else None,
        "step_seconds": member.step_seconds if member is not None else None,
        "since": ack.at if ack is not None and ack.value == standing.line else None,
        "private_ip": preparation.private_ip if preparation is not None else None,
    }


def _job(snapshot: Snapshot) -> dict[str, Any] | None:
    if snapshot.job_facts is None:
        return None
    report = snapshot.job_facts.report
    return {
        "job": report.job,
        "state": report.state,
        "alive": snapshot.decision.job.alive,
        "generation": report.generation,
        "revision": report.revision,
        "epoch": report.epoch,
        "epochs": report.epochs,
        "step": report.step,
        "workers": sum(member.processes for member in report.members if member.active),
        "samples_per_second": report.samples_per_second,
        "heard_at": snapshot.job_facts.heard_at,
        "heard_seconds_ago": round(max(snapshot.at - snapshot.job_facts.heard_at, 0.0), 1),
        "reason": report.reason,
        "coordinator": report.instance_id,
        "traceback": report.traceback,
        "unreachable": [address.model_dump(mode="json") for address in report.unreachable],
        "progress": report.progress.model_dump(mode="json") if report.progress is not None else None,
    }


def with_price(summary_data: dict[str, Any], price: Callable[[str, str], float | None]) -> dict[str, Any]:
    """Add to the summary what the remaining instances cost, in dollars an hour, if every price is known."""
    remaining = summary_data["stays"]
    if remaining is None or not remaining["instances"]:
        return summary_data
    prices = [(price(kind["type"], kind["market"]), kind["count"]) for kind in remaining["types"]]
    priced = sum(count for cost, count in prices if cost is not None) == remaining["instances"]
    hourly = sum(cost * count for cost, count in prices if cost is not None) if priced else None
    return {**summary_data, "stays": {**remaining, "hourly": hourly}}


def history(snapshot: Snapshot) -> dict[str, Any] | None:
    """The job's curves and events, as fields of `JobHistory`; None if none were reported."""
    report = snapshot.job_facts.report if snapshot.job_facts is not None else None
    return report.history.model_dump(mode="json") if report is not None and report.history is not None else None


def _facts(facts: NodeFacts) -> Mapping[str, Any]:
    fields: dict[str, Any] = facts.model_dump(mode="json", exclude_defaults=True)
    return {name: value for name, value in fields.items() if name != "instance"}
