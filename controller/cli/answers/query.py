"""Derive the state of a cluster and of one instance from stored facts, by the controller's own decision code. The
status shown for an instance is the status in the instance's tag.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dyntrain.controller.cli.answers.announced import announced_standing
from dyntrain.controller.cli.answers.ending import closing_data, ended_instances, remaining_instances
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
from dyntrain.controller.core.views.arbitration import Register, preferred_reads
from dyntrain.controller.core.views.view import Rules
from dyntrain.controller.loops.converge import cluster_of, found_groups
from dyntrain.controller.loops.ports import Ports
from dyntrain.controller.loops.registry import Registry


@dataclass(frozen=True)
class Snapshot:  # of a cluster's state
    cluster: str  # name of the cluster
    decision: Decision
    job_facts: JobFacts | None
    at: float  # time at which the state was read
    rules: Rules
    held: Mapping[str, Hold] = field(default_factory=dict)  # the Auto Scaling groups whose launches are on hold


def snapshot(ports: Ports, registry: Registry, cluster: str, elastic: ElasticTag) -> Snapshot:
    """Read the cluster's state with consistent reads of DynamoDB, so that a later snapshot never shows older facts.
    Raises GiveUp for an unregistered cluster.
    """
    policy = policy_of(registry, cluster)
    stored_cluster = ports.clusters.get(cluster)
    job_facts, _version = ports.jobs.get(cluster)
    stored_nodes = ports.nodes.of_cluster(cluster)
    existing_ids = [instance for instance, stored_node in stored_nodes.items() if not stored_node.facts.terminated]
    node_facts = [stored_node.facts for stored_node in {**stored_nodes, **ports.nodes.get_many(existing_ids)}.values()]
    now = ports.clock()
    rules = Rules(policy, elastic, found_groups(ports, registry, cluster))
    group_records = {group: record for group in rules.groups if (record := ports.group_records.get(group)) is not None}
    launch_holds = {
        group: record.facts.hold for group, record in group_records.items() if record.facts.hold is not None
    }
    return Snapshot(
        cluster,
        decide(node_facts, stored_cluster.membership, job_facts, rules, now, stored_cluster.published),
        job_facts,
        now,
        rules,
        {group: hold for group, hold in launch_holds.items() if hold.held},
    )


def policy_of(registry: Registry, cluster: str) -> ClusterPolicy:
    """The cluster's policy. Raises GiveUp for an unregistered cluster, and for a cluster with an invalid policy."""
    policy = registry.policy(cluster)
    if policy is None:
        policy_error = registry.problems().get(cluster)
        cluster_names = ", ".join(sorted(registry.all())) or "none"
        raise GiveUp(
            unmanaged_message(cluster, policy_error)
            if policy_error
            else f"no cluster {cluster!r} is registered (known: {cluster_names})"
        )
    return policy


def summary(snapshot: Snapshot, *, gone: bool = False) -> dict[str, Any]:
    """The data that `dyntrain status` shows about a cluster. Terminated nodes are listed only if `gone` is true."""
    node_rows = [
        _node_row(node, snapshot)
        for node in snapshot.decision.nodes
        if gone or announced_standing(node).status != "GONE"
    ]
    membership = snapshot.decision.membership
    return {
        "cluster": snapshot.cluster,
        "job": _job_data(snapshot),
        "stays": remaining_instances(snapshot.decision, snapshot.job_facts, snapshot.rules)
        if snapshot.decision.job.over
        else None,
        "closing": closing_data(snapshot.decision),
        "held": [
            {"group": group, "times": hold.times, "since": hold.at, "reason": hold.reason}
            for group, hold in sorted(snapshot.held.items())
        ],
        "again": _restart_advice(snapshot) if snapshot.decision.job.over else "",
        "ended": ended_instances(snapshot.decision, snapshot.job_facts),
        "target": {
            "revision": membership.revision,
            "members": list(membership.members),
            "leave_by": membership.leave_by,
            "coordinator": membership.coordinator,
            "term": membership.term,
        },
        "nodes": sorted(
            node_rows,
            key=lambda row: (not row["base"], row["rank"] if row["rank"] is not None else 1 << 30, row["instance"]),
        ),
    }


def explanation(snapshot: Snapshot, instance: str) -> dict[str, Any]:
    """The data that `dyntrain explain` shows about an instance: its status with the reason, and every fact with source
    and time. Raises GiveUp for an unknown instance.
    """
    node = next((node for node in snapshot.decision.nodes if node.view.instance == instance), None)
    if node is None:
        raise GiveUp(f"the controller does not know {instance} in the cluster {snapshot.cluster}")
    action_names = [type(action).__name__ for action in snapshot.decision.actions if instance in instances(action)]
    view = node.view
    return {
        "cluster": snapshot.cluster,
        **_node_row(node, snapshot),
        "would_change": _change_advice(node, snapshot),
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
        "facts": _fact_fields(view.facts),
        "origins": [asdict(origin) for origin in origins(view.facts)],
        "passed_over": _ignored_fact_messages(view.facts, snapshot.rules),
    }


def _ignored_fact_messages(facts: NodeFacts, rules: Rules) -> list[str]:
    """Messages about ignored facts: a read that began too soon after an event, or an event older than a read."""
    settling_seconds = rules.policy.settling_seconds
    valid_reads = preferred_reads(facts, settling_seconds, rules.elastic_tag)
    events_and_reads: tuple[tuple[Register, Fact | None, Fact | None], ...] = (
        ("tags", facts.tags_event, facts.tags_read),
        ("state", facts.state_event, facts.state_read),
        ("group", facts.group_event, facts.group_read),
    )
    messages = []
    for fact_name, event_fact, read_fact in events_and_reads:
        if event_fact is None or read_fact is None:
            continue
        if fact_name in valid_reads:
            messages.append(f"{fact_name}_event: a later read counts")
        else:
            messages.append(f"{fact_name}_read: it began within {settling_seconds:g} s after the event, which counts")
    return messages


def cluster_of_instance(ports: Ports, registry: Registry, instance: str) -> str:
    """The instance's cluster. Raises GiveUp for an instance that has no stored facts or belongs to no registered
    cluster.
    """
    stored_node = ports.nodes.get(instance)
    if stored_node is None:
        raise GiveUp(f"the controller does not know {instance}: check the id and the region")
    cluster = cluster_of(ports, stored_node.facts, registry)
    if cluster is None:
        raise GiveUp(f"the instance {instance} belongs to no registered cluster")
    return cluster


def _change_advice(node: NodeStatus, snapshot: Snapshot) -> str:
    job_is_over = snapshot.decision.job.over
    advice = announced_standing(node).reason.change_advice(node.view.base, job_is_over)
    return "; ".join(filter(None, (advice, _restart_advice(snapshot) if job_is_over else "")))


def _restart_advice(snapshot: Snapshot) -> str:
    """Advice on how to restart the cluster's job, or "" for a cluster that is closed or has no base nodes."""
    closing = snapshot.decision.ending
    has_base_nodes = any(node.view.base and not node.view.terminated for node in snapshot.decision.nodes)
    if not has_base_nodes or (closing is not None and closing.complete):
        return ""
    return f"`dyntrain cluster restart {snapshot.cluster}` begins the job again"


def _node_row(node: NodeStatus, snapshot: Snapshot) -> dict[str, Any]:
    report = snapshot.job_facts.report if snapshot.job_facts is not None else None
    job_member = (
        next((job_member for job_member in report.members if job_member.instance_id == node.view.instance), None)
        if report is not None and snapshot.decision.job.alive
        else None
    )
    status_ack, standing = node.view.facts.acks.status, announced_standing(node)
    preparation = node.view.preparation
    return {
        "instance": node.view.instance,
        "status": standing.status,
        "reason": str(standing.reason),
        "sentence": standing.reason.sentence_for(snapshot.decision.job.over),
        "detail": standing.detail,
        "base": node.view.base,
        "master": node.view.master,
        "generation": report.generation if report is not None and job_member is not None else None,
        "rank": job_member.rank if job_member is not None else None,
        "step_seconds": job_member.step_seconds if job_member is not None else None,
        "since": status_ack.at if status_ack is not None and status_ack.value == standing.line else None,
        "private_ip": preparation.private_ip if preparation is not None else None,
    }


def _job_data(snapshot: Snapshot) -> dict[str, Any] | None:
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
    """Return the summary with the hourly cost, in dollars, of the instances that still run after the job. The hourly
    cost is None unless all prices are known.
    """
    remaining_nodes = summary_data["stays"]
    if remaining_nodes is None or not remaining_nodes["instances"]:
        return summary_data
    hourly_prices = [
        (price(type_count["type"], type_count["market"]), type_count["count"])
        for type_count in remaining_nodes["types"]
    ]
    all_prices_known = (
        sum(count for hourly_price, count in hourly_prices if hourly_price is not None) == remaining_nodes["instances"]
    )
    hourly_total = (
        sum(hourly_price * count for hourly_price, count in hourly_prices if hourly_price is not None)
        if all_prices_known
        else None
    )
    return {**summary_data, "stays": {**remaining_nodes, "hourly": hourly_total}}


def history(snapshot: Snapshot) -> dict[str, Any] | None:
    """The curves and events of the cluster's job in the form `JobHistory`, or None if the job reported no history."""
    report = snapshot.job_facts.report if snapshot.job_facts is not None else None
    return report.history.model_dump(mode="json") if report is not None and report.history is not None else None


def _fact_fields(facts: NodeFacts) -> Mapping[str, Any]:
    fact_fields: dict[str, Any] = facts.model_dump(mode="json", exclude_defaults=True)
    return {field: value for field, value in fact_fields.items() if field != "instance"}
