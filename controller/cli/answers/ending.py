"""The end of a cluster: what still runs after the job and until when, and how to continue with one that is closed."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dyntrain.controller.contract.plain_text import in_brief
from dyntrain.controller.core.decisions.closing import AFTER_JOB_SECONDS, over_since
from dyntrain.controller.core.history.metering import costs_cluster
from dyntrain.controller.core.planning import Decision
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.view import Rules


def stays(decision: Decision, job_facts: JobFacts | None, rules: Rules) -> dict[str, Any]:
    """What still runs after the job; `hourly` is filled in by `with_price`, `until` is when the controller ends it."""
    running = [node.view for node in decision.nodes if node.view.base and costs_cluster(node.view, rules)]
    kinds = Counter((view.facts.machine.type, view.facts.machine.market) for view in running if view.facts.machine)
    types = [{"type": kind, "market": market, "count": count} for (kind, market), count in sorted(kinds.items())]
    how, over = rules.policy.after_job, over_since(decision.membership, decision.job, job_facts)
    expires = any(view.started is not None and over is not None and view.started <= over for view in running)
    until = over + AFTER_JOB_SECONDS if over is not None and expires and how != "keep" else None
    return {"instances": len(running), "types": types, "hourly": None, "after_job": how, "until": until}


def closing(decision: Decision) -> dict[str, Any] | None:
    """How the cluster is being closed; None: it goes on. `stopped` instances may be started again; `ended` are the
    groups whose places were given up.
    """
    ending = decision.ending
    if ending is None:
        return None
    base = [node.view for node in decision.nodes if node.view.base]
    ends = (view.facts.acks.terminate for view in base if view.closed is not None)
    return {
        "reason": str(ending.reason),
        "sentence": ending.reason.sentence,
        "rests": ending.complete,
        "stopped": [view.instance for view in base if view.closed is not None and not view.terminate_issued],
        "ended": sorted({end.group for end in ends if end is not None and end.lowered}),
    }


def job_over(cluster: str, job_facts: JobFacts | None) -> str:
    """The beginning of a sentence: the job is over, and how it ended."""
    report = job_facts.report if job_facts is not None else None
    how = f" (it failed: {in_brief(report.reason)})" if report is not None and report.state == "failed" else ""
    return f"the job of {cluster} is over{how}"


def begins_again(decision: Decision, job_facts: JobFacts | None) -> bool:
    """Whether a base node has started since the job's end, whose next job has not reported yet."""
    ended = over_since(decision.membership, decision.job, job_facts)
    prepared = [node.view.preparation for node in decision.nodes if node.view.base]
    return ended is not None and any(word is not None and word.at > ended for word in prepared)


def ended_with(decision: Decision, job_facts: JobFacts | None) -> list[str]:
    """Elastic instances that were ended because the job was over, and are gone."""
    ended = over_since(decision.membership, decision.job, job_facts)
    if ended is None:
        return []
    terminated = [node.view for node in decision.nodes if node.view.terminated and not node.view.base]
    return [
        view.instance for view in terminated if (order := view.facts.acks.terminate) is not None and order.at >= ended
    ]
