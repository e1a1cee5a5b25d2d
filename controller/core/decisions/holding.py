"""Stop the launches of an elastic group whose nodes fail alike repeatedly, until prepare-data has changed. Pure.

prepare-data is the cluster's script that prepares a node. With a mistake in this script, a group would launch machine
after machine until somebody notices. Failures are alike when the same prepare-data ends in the same way (exit code,
signal, time-out), whatever its last output. Machines that never report also fail alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.decisions.status import NodeStatus
from dyntrain.controller.core.records.groups import GroupFacts, Hold
from dyntrain.controller.core.views.view import View

SILENT_SECONDS = 600.0  # a machine that never reported and ended sooner was terminated on purpose
_NUMBERS = re.compile(r"[0-9a-f]{8,}|\d+")


@dataclass(frozen=True)
class Streak:
    """The latest consecutive failures: their number, the digest of prepare-data, and the reason of the last failure."""

    times: int
    script: str
    reason: str


@dataclass(frozen=True)
class HoldPlan:
    """A change of a group's launches. `memory` is stored before the operation. With `operation` None, only `memory` is
    stored.
    """

    memory: Hold
    operation: Literal["hold", "release"] | None
    why: Literal["FAILED_ALIKE", "SCRIPT_CHANGED", "REPEATED", "RESUMED_BY_OTHERS"]


def streak(nodes: Iterable[NodeStatus], group: str, since: float = 0.0) -> Streak | None:
    """The latest consecutive failures among the group's launches that ended after `since`; None: the latest launch
    succeeded, or no launch ended.
    """
    results = sorted(
        (result for node in nodes if (result := _launch_result(node.view, group)) is not None and result[0] > since),
        key=lambda result: result[0],
    )
    if not results or results[-1][1] is None:
        return None
    times = 0
    for _at, kind, *_ in reversed(results):
        if kind != results[-1][1]:
            break
        times += 1
    return Streak(times, results[-1][2], results[-1][3])


def current_script(nodes: Iterable[NodeStatus]) -> tuple[float, str] | None:
    """The digest of prepare-data on the volume, and the time of the latest report that contains it."""
    scripts = [
        (node.view.heard.at, node.view.heard.script)
        for node in nodes
        if not node.view.terminated and node.view.heard is not None and node.view.heard.script
    ]
    return max(scripts, default=None)


def plan_hold(
    facts: GroupFacts, nodes: Sequence[NodeStatus], policy: ClusterPolicy, now: float, launches: bool | None = None
) -> HoldPlan | None:
    """The change of the group's launches; None: no change. `launches` says whether the group launches, as just read.

    `launches` None means that the group was not read. Reading is needed only if this function then returns a plan, or
    if the group is held.
    """
    memory, script = facts.hold, current_script(nodes)
    if memory is not None and not memory.done:
        return HoldPlan(memory.model_copy(update={"at": now}), "hold" if memory.held else "release", "REPEATED")
    if memory is not None and memory.held:
        if script is not None and _script_changed(memory, script):
            return HoldPlan(
                memory.model_copy(update={"at": now, "held": False, "done": False}), "release", "SCRIPT_CHANGED"
            )
        if launches:
            return HoldPlan(memory.model_copy(update={"at": now, "held": False}), None, "RESUMED_BY_OTHERS")
        return None
    failure_streak = streak(nodes, facts.group, memory.at if memory is not None else 0.0)
    if failure_streak is None or failure_streak.times < policy.alike_failures or launches is False:
        return None
    if script is not None and failure_streak.script and script[1] != failure_streak.script:
        return None  # prepare-data has changed: the next launch runs the new script
    new_hold = Hold(
        at=now,
        held=True,
        script=failure_streak.script,
        times=failure_streak.times,
        reason=failure_streak.reason,
        done=False,
    )
    return HoldPlan(new_hold, "hold", "FAILED_ALIKE")


def _script_changed(memory: Hold, script: tuple[float, str]) -> bool:
    """Whether prepare-data has changed since the hold. If the failed script is unknown, any script that was reported
    later counts as a change.
    """
    return script[1] != memory.script if memory.script else script[0] > memory.at


def _launch_result(node: View, group: str) -> tuple[float, tuple[str, str] | None, str, str] | None:
    """When and how a launch of the group ended, with which script, and for which reason. None in place of how means
    that the node was prepared.
    """
    hooks = [hook for hook in node.facts.hooks.values() if hook.transition == "launch" and hook.group == group]
    if node.base or not hooks:
        return None
    preparation = node.facts.preparation
    if preparation is not None and preparation.outcome == "prepare_failed":
        kind = _NUMBERS.sub("#", preparation.reason.partition("\n")[0])
        return preparation.at, (preparation.script, kind), preparation.script, preparation.reason
    if preparation is not None:
        return preparation.at, None, "", ""
    end_times = [node.facts.state_event.at] if node.terminated and node.facts.state_event is not None else []
    if end_times and node.facts.heard is None and end_times[0] - min(hook.at for hook in hooks) >= SILENT_SECONDS:
        return end_times[0], ("", "silent"), "", "the group's last nodes never reported: their user data failed"
    return None
