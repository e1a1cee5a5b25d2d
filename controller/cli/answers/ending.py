"""The end of a job: the instances that still run, and how the controller closes the cluster."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dyntrain.controller.contract.plain_text import in_brief
from dyntrain.controller.core.decisions.closing import AFTER_JOB_SECONDS, over_since
from dyntrain.controller.core.history.metering import costs_cluster
from dyntrain.controller.core.planning import Decision
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.view import Rules


def remaining_instances(decision: Decision, job_facts: JobFacts | None, rules: Rules) -> dict[str, Any]:
    """The base nodes that run after the job. `with_price` sets `hourly`; the controller ends the nodes at `until`."""
    running = [node.view for node in decision.nodes if node.view.base and costs_cluster(node.view, rules)]
    kinds = Counter((view.facts.machine.type, view.facts.machine.market) for view in running if view.facts.machine)
    types = [{"type": name, "market": market, "count": count} for (name, market), count in sorted(kinds.items())]
    after_job, ended_at = rules.policy.after_job, over_since(decision.membership, decision.job, job_facts)
    is_closable = any(
        view.started is not None and ended_at is not None and view.started <= ended_at for view in running
    )
    until = ended_at + AFTER_JOB_SECONDS if ended_at is not None and is_closable and after_job != "keep" else None
    return {"instances": len(running), "types": types, "hourly": None, "after_job": after_job, "until": until}


def closing(decision: Decision) -> dict[str, Any] | None:
    """How the controller closes the cluster; None if the cluster stays open. `stopped`: instances that can be started
    again. `ended`: groups whose desired capacity was lowered.
    """
    ending = decision.ending
    if ending is None:
        return None
    base = [node.view for node in decision.nodes if node.view.base]
    terminations = (view.facts.acks.terminate for view in base if view.closed is not None)
    return {
        "reason": str(ending.reason),
        "sentence": ending.reason.sentence,
        "rests": ending.complete,
        "stopped": [view.instance for view in base if view.closed is not None and not view.terminate_issued],
        "ended": sorted({end.group for end in terminations if end is not None and end.lowered}),
    }


def job_over_text(cluster: str, job_facts: JobFacts | None) -> str:
    """The first words of a sentence which say that the job is over, and how it ended."""
    report = job_facts.report if job_facts is not None else None
    failure = f" (it failed: {in_brief(report.reason)})" if report is not None and report.state == "failed" else ""
    return f"the job of {cluster} is over{failure}"


def is_restarting(decision: Decision, job_facts: JobFacts | None) -> bool:
    """Whether a base node has reported its preparation since the job's end, so that a new job is about to start."""
    ended = over_since(decision.membership, decision.job, job_facts)
    reports = [node.view.preparation for node in decision.nodes if node.view.base]
    return ended is not None and any(report is not None and report.at > ended for report in reports)


def ended_with_job(decision: Decision, job_facts: JobFacts | None) -> list[str]:
    """Terminated elastic instances whose termination was ordered after the job's end."""
    ended = over_since(decision.membership, decision.job, job_facts)
    if ended is None:
        return []
    terminated = [node.view for node in decision.nodes if node.view.terminated and not node.view.base]
    return [
        view.instance
        for view in terminated
        if (termination := view.facts.acks.terminate) is not None and termination.at >= ended
    ]
