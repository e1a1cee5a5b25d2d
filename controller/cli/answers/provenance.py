"""The source and time of each fact about a node, printed by `dyntrain explain`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dyntrain.controller.core.records.acks import Acks, Announcement, Doubt, Effect, LifecycleResult, MissedReads
from dyntrain.controller.core.records.facts import NodeFacts

_NOTICES = {
    "spot": "event EC2 Spot Instance Interruption Warning",
    "rebalance": "event EC2 Instance Rebalance Recommendation",
    "health": "event AWS Health Event",
    "node": "the node's own report",
}


@dataclass(frozen=True)
class Origin:
    """A fact's origin. `says`: the fact, shortened; `where`: source; `at`: time of the event or of the read's start."""

    fact: str
    says: str
    where: str
    at: float | None


def origins(facts: NodeFacts) -> tuple[Origin, ...]:
    """The origins of the node's facts, oldest first. Facts without a time come before all others."""
    return tuple(sorted(_origins(facts), key=lambda origin: (origin.at or 0.0, origin.fact)))


def _origins(facts: NodeFacts) -> Iterator[Origin]:
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
        where = f"event Tag Change on Resource, version {facts.tags_event.version:g}"
        yield Origin("tags_event", _tags(facts.tags_event.tags), where, facts.tags_event.at)
    if facts.tags_read is not None:
        yield Origin("tags_read", _tags(facts.tags_read.tags), "DescribeInstances", facts.tags_read.started)
    if facts.state_event is not None:
        yield Origin(
            "state_event", facts.state_event.state, "event EC2 Instance State-change Notification", facts.state_event.at
        )
    if facts.state_read is not None:
        yield Origin("state_read", facts.state_read.state, "DescribeInstances", facts.state_read.started)
    if facts.machine is not None:
        says = f"{facts.machine.type} {facts.machine.market}"
        yield Origin("machine", says, "DescribeInstances", facts.machine.started)
    if facts.terminated:
        yield Origin("terminated", "for good", "an event or a read that said terminated", None)
    if facts.started_at:
        yield Origin("started_at", "began a new life", "event EC2 Instance State-change Notification", facts.started_at)
    yield from _group(facts)
    for key, hook in facts.hooks.items():
        where = "DescribeAutoScalingGroups" if hook.token is None else "event of the lifecycle action"
        yield Origin(f"hooks.{key}", f"{hook.transition} hook {hook.hook} of {hook.group} waits", where, hook.at)
    if facts.preparation is not None:
        says = f"attempt {facts.preparation.attempt}: {facts.preparation.outcome}"
        says += f", {why.splitlines()[0]}" if (why := facts.preparation.reason) else ""
        yield Origin("preparation", says, "the node's own report", facts.preparation.at)
    if facts.heard is not None:
        script = f", sees prepare-data {facts.heard.script[:12]}" if facts.heard.script else ""
        yield Origin("heard", f"it lives: {facts.heard.doing}{script}", "the node's own report", facts.heard.at)
    for notice in facts.notices:
        says = "called off" if notice.closed else f"taken at {notice.deadline:.0f}"
        yield Origin("notices", says, _NOTICES.get(notice.kind, notice.kind), notice.said_at or notice.deadline)
    yield from _acks(facts.acks)


def _acks(acks: Acks) -> Iterator[Origin]:
    for name, announced in acks:
        entries = (
            {f"acks.{name}.{key}": value for key, value in announced.items()} if isinstance(announced, dict) else {}
        )
        for key, ack in (entries or {f"acks.{name}": announced}).items():
            if isinstance(ack, Effect | Announcement | LifecycleResult | MissedReads | Doubt):
                fields: dict[str, Any] = ack.model_dump(exclude={"at"})
                yield Origin(key, " ".join(map(str, fields.values())) or "done", "the controller itself", ack.at)


def _group(facts: NodeFacts) -> Iterator[Origin]:
    if facts.group_event is not None:
        yield Origin(
            "group_event",
            f"{facts.group_event.phase} in {facts.group_event.group}",
            "event of EC2 Auto Scaling",
            facts.group_event.at,
        )
    if facts.group_read is not None:
        says = (
            f"{facts.group_read.phase} in {facts.group_read.group}"
            if facts.group_read.group is not None
            else "in no group of the cluster"
        )
        yield Origin("group_read", says, "DescribeAutoScalingGroups", facts.group_read.started)


def _tags(tags: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" if value else key for key, value in sorted(tags.items())) or "none that matter"
