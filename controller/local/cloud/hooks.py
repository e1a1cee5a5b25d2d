"""Lifecycle actions of Auto Scaling groups, with heartbeats, deadlines and the cap on extended deadlines.

https://docs.aws.amazon.com/autoscaling/ec2/userguide/lifecycle-hooks-overview.html
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dyntrain.controller.local.events import Transition

ActionResult = Literal["CONTINUE", "ABANDON"]

LONGEST_ACTION_SECONDS = 48 * 3600.0  # AWS's cap on a lifecycle action's duration
LONGEST_ACTION_TIMEOUTS = 100  # AWS's cap on a lifecycle action's duration, as a multiple of its timeout


@dataclass(frozen=True)
class LifecycleAction:
    """The wait of one instance for a lifecycle hook of its Auto Scaling group. All times are in seconds, and come from
    the same clock as the parameter `now`.
    """

    token: str  # identifies the lifecycle action in API calls
    group: str  # name of the Auto Scaling group
    hook: str  # name of the lifecycle hook
    transition: Transition  # launching or terminating
    instance_id: str
    heartbeat: float  # seconds by which a heartbeat extends the deadline
    started_at: float
    deadline: float
    default: ActionResult  # the result of an action that times out

    @property
    def latest_deadline(self) -> float:
        """The latest time to which heartbeats can extend the deadline of the action."""
        return self.started_at + min(LONGEST_ACTION_SECONDS, LONGEST_ACTION_TIMEOUTS * self.heartbeat)

    def with_heartbeat(self, now: float) -> LifecycleAction:
        return replace(self, deadline=min(now + self.heartbeat, self.latest_deadline))

    def timed_out(self, now: float) -> bool:
        return now >= self.deadline


def begin_action(
    token: str,
    group: str,
    hook: str,
    transition: Transition,
    instance_id: str,
    heartbeat: float,
    default: ActionResult,
    now: float,
) -> LifecycleAction:
    return LifecycleAction(token, group, hook, transition, instance_id, heartbeat, now, now + heartbeat, default)
