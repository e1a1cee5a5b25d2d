"""Alarms for people, as part of a decision. Each alarm is raised once while the node's status and reason stay the same.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from dyntrain.controller.core.decisions.brake import ENDINGS_HELD, ENDINGS_HELD_TEXT
from dyntrain.controller.core.decisions.orphans import orphaned_since
from dyntrain.controller.core.decisions.status import NodeStatus
from dyntrain.controller.core.records.acks import Announcement
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.core.views.view import Rules

ORPHAN = "Orphan"
RESYNC_HELD = "ResyncHeld"
READ_FAILED = "ReadFailed"
LAUNCH_FAILED = "LaunchFailed"
GIVEN_UP = "GivenUp"
TARGET_DISPUTED = "TargetDisputed"
POLICY_INVALID = "PolicyInvalid"
LAUNCHES_HELD = "LaunchesHeld"
BASE_PREPARE_FAILED = "BasePrepareFailed"
_METRICS = {
    Reason.HELD_BY_MINIMUM: "HeldByMinimum",
    Reason.BASE_PROTECTED: "BaseNodeAway",
    Reason.BASE_UNTAGGED: "BaseNodeAway",
    Reason.GROUP_REFUSES: "GroupRefuses",
    Reason.NO_BASE_NODE: "NoBaseNode",
    Reason.UNKNOWN_TO_EC2: "UnknownInstance",
    Reason.HOOK_CAP: "PreparationAbandoned",
    Reason.WORKER_FAILED: "WorkerFailed",
    Reason.NEVER_HEARD: "NeverHeard",
}
METRICS = (
    *dict.fromkeys(_METRICS.values()),
    ORPHAN,
    ENDINGS_HELD,
    RESYNC_HELD,
    READ_FAILED,
    LAUNCH_FAILED,
    GIVEN_UP,
    TARGET_DISPUTED,
    POLICY_INVALID,
    BASE_PREPARE_FAILED,
    LAUNCHES_HELD,
)


@dataclass(frozen=True)
class Alarm:
    """An alarm. `metric` is the name that CloudWatch alarms watch. `about` maps each instance to the status and reason
    for which the alarm is raised.
    """

    metric: str
    about: Mapping[str, str]
    sentence: str

    @property
    def instances(self) -> tuple[str, ...]:
        return tuple(self.about)


def alarms_of(
    nodes: Sequence[NodeStatus], rules: Rules, now: float, held_back: AbstractSet[str] = frozenset()
) -> tuple[Alarm, ...]:
    """The alarms to raise. `held_back` are the instances whose termination the brake has stopped."""
    by_alarm: dict[tuple[str, str], dict[str, str]] = {}
    for node in nodes:
        line = node.standing.line
        metric = _METRICS.get(node.standing.reason)
        if metric is not None:
            by_alarm.setdefault((metric, node.standing.reason.sentence), {})[node.view.instance] = line
        if node.view.base and node.standing.status == "PREPARE_FAILED":
            sentence = f"a base node could not be prepared, and waits for people: {node.standing.detail}"
            by_alarm.setdefault((BASE_PREPARE_FAILED, sentence), {})[node.view.instance] = line
        if node.view.instance in held_back:
            by_alarm.setdefault((ENDINGS_HELD, ENDINGS_HELD_TEXT), {})[node.view.instance] = line
        if orphaned_since(node.standing, node.view, rules, now) is not None:
            sentence = "it runs, and nobody has wanted it for longer than orphan_grace_seconds"
            by_alarm.setdefault((ORPHAN, sentence), {})[node.view.instance] = line
    acks = {node.view.instance: node.view.facts.acks for node in nodes}
    alarms = []
    for (metric, sentence), about in sorted(by_alarm.items()):
        new_lines = {
            instance: line
            for instance, line in about.items()
            if _is_new(acks[instance].alarms.get(metric), acks[instance].status, line)
        }
        if new_lines:
            alarms.append(Alarm(metric, new_lines, sentence))
    return tuple(alarms)


def _is_new(alarm: Announcement | None, status: Announcement | None, line: str) -> bool:
    """Whether the alarm has not been raised since the node got its present status."""
    since = status.at if status is not None and status.value == line else None
    return alarm is None or alarm.value != line or since is None or alarm.at < since
