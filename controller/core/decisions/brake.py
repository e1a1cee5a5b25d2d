"""A brake on ending instances that never reported: when more than a handful come due within ten minutes, all wait until
people release them. Pure.

An instance that never reported looks like one that serves something else, and many at once look like a mistake: a
policy that names a wrong group, tags removed by a script, a forged report. The brake does not touch endings of nodes
that reported or were in the job, nor those that a group or AWS decides.

Each node remembers the alarm of its stopped ending; while one such node is still to be ended, no other that never
reported is ended either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from dyntrain.controller.contract.leave_windows import LEAVE_NOW, LEAVE_TAG
from dyntrain.controller.core.decisions.actions import Action, Terminate, TerminateInGroup, instances
from dyntrain.controller.core.decisions.status import NodeStatus
from dyntrain.controller.core.views.view import Rules, View

HANDFUL = 5
WITHIN_SECONDS = 600.0
ENDINGS_HELD = "EndingsHeld"
WHY = (
    f"its ending is held: it never reported, and more than {HANDFUL} like it were to be ended within ten minutes; look "
    f"what it is, then tag it {LEAVE_TAG}={LEAVE_NOW}"
)


def held_endings(nodes: Sequence[NodeStatus], actions: Iterable[Action], rules: Rules, now: float) -> frozenset[str]:
    """The instances that `actions` must not end."""
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
    if len(endings) + recent_endings <= HANDFUL and not any(map(_alarm_raised, endings)):
        return frozenset()
    return frozenset(node.view.instance for node in endings)


def without_endings(actions: Iterable[Action], excluded: AbstractSet[str]) -> Iterator[Action]:
    """The actions, without those that end one of the `others`."""
    for action in actions:
        if isinstance(action, Terminate):
            remaining = tuple(instance for instance in action.instances if instance not in excluded)
            if remaining:
                yield replace(action, instances=remaining)
        elif not isinstance(action, TerminateInGroup) or action.instance not in excluded:
            yield action


def _never_reported(node: View, rules: Rules) -> bool:
    """Whether no report ever came from it, and nobody has allowed it to go."""
    ever_reported = node.facts.preparation is not None or rules.policy.cluster in node.facts.acks.joined
    return not ever_reported and (node.tags or {}).get(LEAVE_TAG, "").strip().lower() != LEAVE_NOW


def _recently_ended(node: View, now: float) -> bool:
    end = node.facts.acks.terminate
    return end is not None and now - end.at < WITHIN_SECONDS


def _alarm_raised(node: NodeStatus) -> bool:
    """Whether an alarm about the held ending was raised since the node came to its present status."""
    alarm, status = node.view.facts.acks.alarms.get(ENDINGS_HELD), node.view.facts.acks.status
    since = status.at if status is not None else 0.0
    return alarm is not None and alarm.value == node.standing.line and alarm.at >= since
