"""A brake on the termination of instances that never reported. When more than five such instances are due within ten
minutes, all these instances wait until people release them. Pure.

An instance that never reported may have another purpose. Many such instances suggest a mistake: a policy with a wrong
group, tags removed by a script, or a forged report. The brake does not stop the termination of nodes that reported or
were in the job, nor terminations by a group or by AWS.

Each node stores the alarm about its held termination. While one such node is still due, no other node that never
reported is terminated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from dyntrain.controller.contract.leave_windows import LEAVE_NOW, LEAVE_TAG
from dyntrain.controller.core.decisions.actions import Action, Terminate, TerminateInGroup, instances
from dyntrain.controller.core.decisions.status import NodeStatus
from dyntrain.controller.core.views.view import Rules, View

MAX_ENDINGS = 5
WITHIN_SECONDS = 600.0
ENDINGS_HELD = "EndingsHeld"
ENDINGS_HELD_TEXT = (
    f"its termination is held: it never reported, and more than {MAX_ENDINGS} such instances were due within ten "
    f"minutes; check the instance, then tag it {LEAVE_TAG}={LEAVE_NOW}"
)


def held_endings(nodes: Sequence[NodeStatus], actions: Iterable[Action], rules: Rules, now: float) -> frozenset[str]:
    """The instances that `actions` must not terminate."""
    if not rules.policy.hold_endings:
        return frozenset()
    ended_by_actions = {
        instance
        for action in actions
        if isinstance(action, Terminate | TerminateInGroup)
        for instance in instances(action)
    }
    unreported = [node for node in nodes if _never_reported(node.view, rules)]
    endings = [node for node in unreported if node.view.instance in ended_by_actions]
    recent_endings = sum(_recently_ended(node.view, now) for node in unreported)
    if len(endings) + recent_endings <= MAX_ENDINGS and not any(map(_alarm_raised, endings)):
        return frozenset()
    return frozenset(node.view.instance for node in endings)


def without_endings(actions: Iterable[Action], excluded: AbstractSet[str]) -> Iterator[Action]:
    """The actions, without the termination of `excluded` instances."""
    for action in actions:
        if isinstance(action, Terminate):
            remaining = tuple(instance for instance in action.instances if instance not in excluded)
            if remaining:
                yield replace(action, instances=remaining)
        elif not isinstance(action, TerminateInGroup) or action.instance not in excluded:
            yield action


def _never_reported(node: View, rules: Rules) -> bool:
    """Whether the node never reported, and no tag of a person releases the node."""
    ever_reported = node.facts.preparation is not None or rules.policy.cluster in node.facts.acks.joined
    return not ever_reported and (node.tags or {}).get(LEAVE_TAG, "").strip().lower() != LEAVE_NOW


def _recently_ended(node: View, now: float) -> bool:
    end = node.facts.acks.terminate
    return end is not None and now - end.at < WITHIN_SECONDS


def _alarm_raised(node: NodeStatus) -> bool:
    """Whether an alarm about the held termination was raised since the node got its present status."""
    alarm, status = node.view.facts.acks.alarms.get(ENDINGS_HELD), node.view.facts.acks.status
    since = status.at if status is not None else 0.0
    return alarm is not None and alarm.value == node.standing.line and alarm.at >= since
