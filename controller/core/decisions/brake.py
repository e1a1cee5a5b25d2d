"""A brake on the termination of instances that never reported. If more than five instances that never reported would be
terminated within ten minutes, the controller keeps the instances until an operator releases each instance. Pure.

An instance that never reported may serve a purpose outside the cluster. Many instances that never reported suggest a
mistake: a policy with a wrong group, tags removed by a script, or a forged report. The controller holds neither the
termination of nodes that reported or were in the job, nor terminations by an Auto Scaling group or by AWS.

The alarm about a held termination is recorded in the facts of the node. While the controller holds the termination of
one node that never reported, the controller also holds the termination of every other node that never reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from dyntrain.controller.contract.leave_windows import LEAVE_NOW, LEAVE_TAG
from dyntrain.controller.core.decisions.actions import Action, Terminate, TerminateInGroup, instances
from dyntrain.controller.core.decisions.status import NodeStatus
from dyntrain.controller.core.views.view import Rules, View

MAX_ENDINGS = 5  # more terminations of instances that never reported are held
COUNTED_SECONDS = 600.0  # the time in which terminations are counted
ENDINGS_HELD = "EndingsHeld"  # the metric of the alarm about held terminations
ENDINGS_HELD_TEXT = (
    f"its termination is held: it never reported, and more than {MAX_ENDINGS} such instances were due within ten "
    f"minutes; check the instance, then tag it {LEAVE_TAG}={LEAVE_NOW}"
)


def ids_to_hold(nodes: Sequence[NodeStatus], actions: Iterable[Action], rules: Rules, now: float) -> frozenset[str]:
    """The instances that the `actions` would terminate, but that the controller keeps until an operator releases the
    instances.
    """
    if not rules.policy.hold_endings:
        return frozenset()
    instances_to_terminate = {
        instance_id
        for action in actions
        if isinstance(action, Terminate | TerminateInGroup)
        for instance_id in instances(action)
    }
    silent_nodes = [node for node in nodes if _never_reported(node.view, rules)]
    held_nodes = [node for node in silent_nodes if node.view.instance in instances_to_terminate]
    recent_terminations = sum(_recently_terminated(node.view, now) for node in silent_nodes)
    if len(held_nodes) + recent_terminations <= MAX_ENDINGS and not any(map(_hold_alarm_raised, held_nodes)):
        return frozenset()
    return frozenset(node.view.instance for node in held_nodes)


def without_terminations(actions: Iterable[Action], excluded: AbstractSet[str]) -> Iterator[Action]:
    """The actions that remain when the `excluded` instances are not terminated."""
    for action in actions:
        if isinstance(action, Terminate):
            remaining_ids = tuple(instance_id for instance_id in action.instances if instance_id not in excluded)
            if remaining_ids:
                yield replace(action, instances=remaining_ids)
        elif not isinstance(action, TerminateInGroup) or action.instance not in excluded:
            yield action


def _never_reported(node: View, rules: Rules) -> bool:
    """Whether the node never reported, and no operator has released the node by the tag `LEAVE_TAG`."""
    ever_reported = node.facts.preparation is not None or rules.policy.cluster in node.facts.acks.joined
    return not ever_reported and (node.tags or {}).get(LEAVE_TAG, "").strip().lower() != LEAVE_NOW


def _recently_terminated(node: View, now: float) -> bool:
    termination = node.facts.acks.terminate
    return termination is not None and now - termination.at < COUNTED_SECONDS


def _hold_alarm_raised(node: NodeStatus) -> bool:
    """Whether an alarm about the held termination was raised since the node got its present status."""
    alarm, status = node.view.facts.acks.alarms.get(ENDINGS_HELD), node.view.facts.acks.status
    status_at = status.at if status is not None else 0.0
    return alarm is not None and alarm.value == node.standing.line and alarm.at >= status_at
