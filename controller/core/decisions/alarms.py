"""The alarms that a decision raises for the operators. While a node's status and reason stay the same, each alarm about
the node is raised only once. Pure.
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

ORPHAN = "Orphan"  # metric: a running instance that serves no job
RESYNC_HELD = "ResyncHeld"  # metric: a read that would remove most members awaits a second read
READ_FAILED = "ReadFailed"  # metric: AWS could not be read
LAUNCH_FAILED = "LaunchFailed"  # metric: a group could not launch an instance
GIVEN_UP = "GivenUp"  # metric: a decision failed, and is not retried before the next tick
TARGET_DISPUTED = "TargetDisputed"  # metric: two targets with one revision differ
POLICY_INVALID = "PolicyInvalid"  # metric: a cluster's policy cannot be used
LAUNCHES_HELD = "LaunchesHeld"  # metric: a group's launches were stopped
BASE_PREPARE_FAILED = "BasePrepareFailed"  # metric: the preparation of a base node failed
_METRIC_BY_REASON = {
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
    *dict.fromkeys(_METRIC_BY_REASON.values()),
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
    """An alarm for the operators. `metric` is the CloudWatch metric whose alarm notifies the operators. `about` maps
    each instance to the status and reason for which the alarm is raised.
    """

    metric: str  # the name of the CloudWatch metric
    about: Mapping[str, str]  # instance id -> its status and reason
    sentence: str  # the text for people

    @property
    def instances(self) -> tuple[str, ...]:
        return tuple(self.about)


def alarms_of(
    nodes: Sequence[NodeStatus], rules: Rules, now: float, held_instances: AbstractSet[str] = frozenset()
) -> tuple[Alarm, ...]:
    """The alarms that the controller has to raise now about the `nodes`. `held_instances` are instances that are not
    terminated until an operator allows the termination.
    """
    lines_by_alarm: dict[tuple[str, str], dict[str, str]] = {}
    for node in nodes:
        standing_line = node.standing.line
        metric = _METRIC_BY_REASON.get(node.standing.reason)
        if metric is not None:
            lines_by_alarm.setdefault((metric, node.standing.reason.sentence), {})[node.view.instance] = standing_line
        if node.view.base and node.standing.status == "PREPARE_FAILED":
            sentence = f"a base node could not be prepared, and waits for people: {node.standing.detail}"
            lines_by_alarm.setdefault((BASE_PREPARE_FAILED, sentence), {})[node.view.instance] = standing_line
        if node.view.instance in held_instances:
            lines_by_alarm.setdefault((ENDINGS_HELD, ENDINGS_HELD_TEXT), {})[node.view.instance] = standing_line
        if orphaned_since(node.standing, node.view, rules, now) is not None:
            sentence = "it runs, and nobody has wanted it for longer than orphan_grace_seconds"
            lines_by_alarm.setdefault((ORPHAN, sentence), {})[node.view.instance] = standing_line
    acks_by_instance = {node.view.instance: node.view.facts.acks for node in nodes}
    new_alarms = []
    for (metric, sentence), lines_by_instance in sorted(lines_by_alarm.items()):
        new_lines_by_instance = {
            instance_id: standing_line
            for instance_id, standing_line in lines_by_instance.items()
            if _alarm_is_new(
                acks_by_instance[instance_id].alarms.get(metric), acks_by_instance[instance_id].status, standing_line
            )
        }
        if new_lines_by_instance:
            new_alarms.append(Alarm(metric, new_lines_by_instance, sentence))
    return tuple(new_alarms)


def _alarm_is_new(alarm: Announcement | None, status: Announcement | None, line: str) -> bool:
    """Whether the alarm has not been raised since the node got its present status and reason."""
    status_at = status.at if status is not None and status.value == line else None
    return alarm is None or alarm.value != line or status_at is None or alarm.at < status_at
