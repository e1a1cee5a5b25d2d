"""Stop a group of elastic nodes from launching nodes after the last nodes of the group all failed in the same way. A
stopped group may launch nodes again when the script prepare-data has changed. Pure.

The cluster's script prepare-data prepares each node for the job. With a mistake in prepare-data, every new node fails,
and the group would launch machine after machine until somebody notices. Two nodes failed in the same way if the same
prepare-data ended with the same exit code, signal or time-out. Differences in the output of prepare-data do not matter.
Two machines that never reported are also treated as failed in the same way.
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
_NUMBERS = re.compile(r"[0-9a-f]{8,}|\d+")  # process ids and other numbers that differ between two alike failures


@dataclass(frozen=True)
class FailureStreak:
    """The latest consecutive failures of a group's nodes in the same way: the number of failures, the digest of the
    script prepare-data, and the reason of the last failure.
    """

    times: int  # number of consecutive failures
    script: str  # SHA-256 of prepare-data
    reason: str  # of the last failure


@dataclass(frozen=True)
class HoldPlan:
    """The decision to stop or allow a group's launches. The controller stores `memory`, its record of the decision,
    before it stops or allows the launches. If `operation` is None, the controller only stores `memory`.
    """

    memory: Hold  # whether launches are stopped, as stored in the group's facts
    operation: Literal["hold", "release"] | None  # stop or allow the launches
    why: Literal["FAILED_ALIKE", "SCRIPT_CHANGED", "REPEATED", "RESUMED_BY_OTHERS"]


def streak(nodes: Iterable[NodeStatus], group: str, since: float = 0.0) -> FailureStreak | None:
    """The latest consecutive failures among the group's launches that ended after `since`. Returns None if the latest
    launch succeeded, or if no launch has ended.
    """
    launch_results = sorted(
        (result for node in nodes if (result := _launch_result(node.view, group)) is not None and result[0] > since),
        key=lambda result: result[0],
    )
    if not launch_results or launch_results[-1][1] is None:
        return None
    failure_count = 0
    for _at, failure_kind, *_ in reversed(launch_results):
        if failure_kind != launch_results[-1][1]:
            break
        failure_count += 1
    return FailureStreak(failure_count, launch_results[-1][2], launch_results[-1][3])


def current_script(nodes: Iterable[NodeStatus]) -> tuple[float, str] | None:
    """The time of the latest report that contains a digest of the script prepare-data, and this digest. Returns None if
    no report contains a digest.
    """
    reported_scripts = [
        (node.view.heard.at, node.view.heard.script)
        for node in nodes
        if not node.view.terminated and node.view.heard is not None and node.view.heard.script
    ]
    return max(reported_scripts, default=None)


def plan_hold(
    facts: GroupFacts, nodes: Sequence[NodeStatus], policy: ClusterPolicy, now: float, launches: bool | None = None
) -> HoldPlan | None:
    """The decision to stop or allow the group's launches. Returns None if neither the launches nor the stored record
    has to change. `launches` says whether the group may launch nodes, as the caller has just read from AWS.

    To save reads of AWS, the caller first passes None for `launches`. The caller has to read the group from AWS only if
    the call without `launches` returns a plan, or if the group's launches are stopped.
    """
    past_hold, reported_script = facts.hold, current_script(nodes)
    if past_hold is not None and not past_hold.done:
        return HoldPlan(past_hold.model_copy(update={"at": now}), "hold" if past_hold.held else "release", "REPEATED")
    if past_hold is not None and past_hold.held:
        if reported_script is not None and _script_changed(past_hold, reported_script):
            return HoldPlan(
                past_hold.model_copy(update={"at": now, "held": False, "done": False}), "release", "SCRIPT_CHANGED"
            )
        if launches:
            return HoldPlan(past_hold.model_copy(update={"at": now, "held": False}), None, "RESUMED_BY_OTHERS")
        return None
    failure_streak = streak(nodes, facts.group, past_hold.at if past_hold is not None else 0.0)
    if failure_streak is None or failure_streak.times < policy.alike_failures or launches is False:
        return None
    if reported_script is not None and failure_streak.script and reported_script[1] != failure_streak.script:
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


def _script_changed(past_hold: Hold, script: tuple[float, str]) -> bool:
    """Whether prepare-data has changed since the launches were stopped. If the digest of the failed script is unknown,
    a later report with any digest is taken as a change.
    """
    return script[1] != past_hold.script if past_hold.script else script[0] > past_hold.at


def _launch_result(node: View, group: str) -> tuple[float, tuple[str, str] | None, str, str] | None:
    """The time at which the group's launch of this node ended, the kind of failure, the digest of prepare-data, and the
    reason of the failure. The kind of failure is None if the node was prepared. Returns None if the group did not
    launch this node, or if the launch has not ended yet.
    """
    hooks = [hook for hook in node.facts.hooks.values() if hook.transition == "launch" and hook.group == group]
    if node.base or not hooks:
        return None
    preparation = node.facts.preparation
    if preparation is not None and preparation.outcome == "prepare_failed":
        failure_kind = _NUMBERS.sub("#", preparation.reason.partition("\n")[0])
        return preparation.at, (preparation.script, failure_kind), preparation.script, preparation.reason
    if preparation is not None:
        return preparation.at, None, "", ""
    end_times = [node.facts.state_event.at] if node.terminated and node.facts.state_event is not None else []
    if end_times and node.facts.heard is None and end_times[0] - min(hook.at for hook in hooks) >= SILENT_SECONDS:
        return end_times[0], ("", "silent"), "", "the group's last nodes never reported: their user data failed"
    return None
