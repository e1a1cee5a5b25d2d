"""Describe the end of a job: the instances that still run, and how the controller closes the cluster."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dyntrain.controller.contract.plain_text import in_brief
from dyntrain.controller.core.decisions.closing import AFTER_JOB_SECONDS, job_end_time
from dyntrain.controller.core.history.metering import costs_cluster
from dyntrain.controller.core.planning import Decision
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.view import Rules


def remaining_instances(decision: Decision, job_facts: JobFacts | None, rules: Rules) -> dict[str, Any]:
    """The number, types and planned shutdown of the base nodes that still run after the job. The field `until` is the
    time at which the controller shuts down the base nodes, or None. The field `hourly` is None until the function
    `with_price` sets the hourly cost.
    """
    running_nodes = [node.view for node in decision.nodes if node.view.base and costs_cluster(node.view, rules)]
    types_and_markets = Counter(
        (view.facts.machine.type, view.facts.machine.market) for view in running_nodes if view.facts.machine
    )
    type_counts = [
        {"type": instance_type, "market": market, "count": instance_count}
        for (instance_type, market), instance_count in sorted(types_and_markets.items())
    ]
    after_job, ended_at = rules.policy.after_job, job_end_time(decision.membership, decision.job, job_facts)
    is_closable = any(  # whether the controller can close the cluster
        view.started is not None and ended_at is not None and view.started <= ended_at for view in running_nodes
    )
    shutdown_at = ended_at + AFTER_JOB_SECONDS if ended_at is not None and is_closable and after_job != "keep" else None
    return {
        "instances": len(running_nodes),
        "types": type_counts,
        "hourly": None,
        "after_job": after_job,
        "until": shutdown_at,
    }


def closing_data(decision: Decision) -> dict[str, Any] | None:
    """Data on how the controller closes the cluster, or None for a cluster that stays open. The field `stopped` lists
    instances that can be started again. The field `ended` lists Auto Scaling groups whose desired capacity was lowered.
    """
    closing = decision.ending
    if closing is None:
        return None
    base_nodes = [node.view for node in decision.nodes if node.view.base]
    termination_orders = (view.facts.acks.terminate for view in base_nodes if view.closed is not None)
    return {
        "reason": str(closing.reason),
        "sentence": closing.reason.sentence,
        "rests": closing.complete,
        "stopped": [view.instance for view in base_nodes if view.closed is not None and not view.terminate_issued],
        "ended": sorted(
            {termination.group for termination in termination_orders if termination is not None and termination.lowered}
        ),
    }


def job_over_text(cluster: str, job_facts: JobFacts | None) -> str:
    """The beginning of a message that the cluster's job is over, with the reason if the job failed."""
    report = job_facts.report if job_facts is not None else None
    failure_text = f" (it failed: {in_brief(report.reason)})" if report is not None and report.state == "failed" else ""
    return f"the job of {cluster} is over{failure_text}"


def is_restarting(decision: Decision, job_facts: JobFacts | None) -> bool:
    """Whether a base node has reported its preparation since the job's end, so that a new job is about to start."""
    job_ended_at = job_end_time(decision.membership, decision.job, job_facts)
    preparation_reports = [node.view.preparation for node in decision.nodes if node.view.base]
    return job_ended_at is not None and any(
        preparation is not None and preparation.at > job_ended_at for preparation in preparation_reports
    )


def ended_instances(decision: Decision, job_facts: JobFacts | None) -> list[str]:
    """The terminated elastic instances whose termination the controller ordered after the job's end."""
    job_ended_at = job_end_time(decision.membership, decision.job, job_facts)
    if job_ended_at is None:
        return []
    terminated_nodes = [node.view for node in decision.nodes if node.view.terminated and not node.view.base]
    return [
        view.instance
        for view in terminated_nodes
        if (terminate_ack := view.facts.acks.terminate) is not None and terminate_ack.at >= job_ended_at
    ]
