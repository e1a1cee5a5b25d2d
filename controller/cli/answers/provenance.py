"""Find the source and the time of each fact about a node, for `dyntrain explain`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dyntrain.controller.core.records.acks import Acks, Announcement, Doubt, Effect, LifecycleResult, MissedReads
from dyntrain.controller.core.records.facts import NodeFacts

_NOTICES = {  # sources of notices of an instance's end, by kind of notice
    "spot": "event EC2 Spot Instance Interruption Warning",
    "rebalance": "event EC2 Instance Rebalance Recommendation",
    "health": "event AWS Health Event",
    "node": "the node's own report",
}


@dataclass(frozen=True)
class Origin:  # of a fact about a node
    """The origin of a fact about a node. The field `at` is the time of the event that reported the fact, or the time at
    which the read from AWS began.
    """

    fact: str  # name of the fact
    says: str  # the fact's content, shortened
    where: str  # source of the fact, such as an event or a call of AWS
    at: float | None  # time of the fact


def origins(facts: NodeFacts) -> tuple[Origin, ...]:
    """The origins of the node's facts: first the facts without a time, and then all other facts from the oldest to the
    newest.
    """
    return tuple(sorted(_unsorted_origins(facts), key=lambda origin: (origin.at or 0.0, origin.fact)))


def _unsorted_origins(facts: NodeFacts) -> Iterator[Origin]:
    if facts.named is not None:
        yield Origin("named", facts.named.cluster or "no cluster", "tags, group or report", facts.named.at)
    if facts.template is not None:
        yield Origin(
            "template",
            f"launched from the template of {facts.template.cluster}",
            "DescribeLaunchTemplates",
            facts.template.at,
        )
    if facts.tags_event is not None:
        source = f"event Tag Change on Resource, version {facts.tags_event.version:g}"
        yield Origin("tags_event", _tags_text(facts.tags_event.tags), source, facts.tags_event.at)
    if facts.tags_read is not None:
        yield Origin("tags_read", _tags_text(facts.tags_read.tags), "DescribeInstances", facts.tags_read.started)
    if facts.state_event is not None:
        yield Origin(
            "state_event", facts.state_event.state, "event EC2 Instance State-change Notification", facts.state_event.at
        )
    if facts.state_read is not None:
        yield Origin("state_read", facts.state_read.state, "DescribeInstances", facts.state_read.started)
    if facts.machine is not None:
        type_and_market = f"{facts.machine.type} {facts.machine.market}"
        yield Origin("machine", type_and_market, "DescribeInstances", facts.machine.started)
    if facts.terminated:
        yield Origin("terminated", "for good", "an event or a read that said terminated", None)
    if facts.started_at:
        yield Origin("started_at", "began a new life", "event EC2 Instance State-change Notification", facts.started_at)
    yield from _group_origins(facts)
    for hook_key, hook in facts.hooks.items():
        source = "DescribeAutoScalingGroups" if hook.token is None else "event of the lifecycle action"
        yield Origin(f"hooks.{hook_key}", f"{hook.transition} hook {hook.hook} of {hook.group} waits", source, hook.at)
    if facts.preparation is not None:
        outcome_text = f"attempt {facts.preparation.attempt}: {facts.preparation.outcome}"
        outcome_text += f", {failure_reason.splitlines()[0]}" if (failure_reason := facts.preparation.reason) else ""
        yield Origin("preparation", outcome_text, "the node's own report", facts.preparation.at)
    if facts.heard is not None:
        script_text = f", sees prepare-data {facts.heard.script[:12]}" if facts.heard.script else ""
        yield Origin("heard", f"it lives: {facts.heard.doing}{script_text}", "the node's own report", facts.heard.at)
    for notice in facts.notices:
        notice_text = "called off" if notice.closed else f"taken at {notice.deadline:.0f}"
        yield Origin("notices", notice_text, _NOTICES.get(notice.kind, notice.kind), notice.said_at or notice.deadline)
    yield from _ack_origins(facts.acks)


def _ack_origins(acks: Acks) -> Iterator[Origin]:
    for ack_name, ack_or_acks in acks:
        acks_by_name = (
            {f"acks.{ack_name}.{ack_key}": keyed_ack for ack_key, keyed_ack in ack_or_acks.items()}
            if isinstance(ack_or_acks, dict)
            else {}
        )
        for fact_name, ack in (acks_by_name or {f"acks.{ack_name}": ack_or_acks}).items():
            if isinstance(ack, Effect | Announcement | LifecycleResult | MissedReads | Doubt):
                ack_fields: dict[str, Any] = ack.model_dump(exclude={"at"})
                yield Origin(
                    fact_name, " ".join(map(str, ack_fields.values())) or "done", "the controller itself", ack.at
                )


def _group_origins(facts: NodeFacts) -> Iterator[Origin]:
    if facts.group_event is not None:
        yield Origin(
            "group_event",
            f"{facts.group_event.phase} in {facts.group_event.group}",
            "event of EC2 Auto Scaling",
            facts.group_event.at,
        )
    if facts.group_read is not None:
        group_text = (
            f"{facts.group_read.phase} in {facts.group_read.group}"
            if facts.group_read.group is not None
            else "in no group of the cluster"
        )
        yield Origin("group_read", group_text, "DescribeAutoScalingGroups", facts.group_read.started)


def _tags_text(tags: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" if value else key for key, value in sorted(tags.items())) or "none that matter"
