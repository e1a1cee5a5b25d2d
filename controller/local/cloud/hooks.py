"""Lifecycle actions of Auto Scaling: heartbeats, deadlines and the global cap, as pure data.

https://docs.aws.amazon.com/autoscaling/ec2/userguide/lifecycle-hooks-overview.html
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dyntrain.controller.local.events import Transition

Result = Literal["CONTINUE", "ABANDON"]

CAP_SECONDS = 48 * 3600.0
CAP_HEARTBEATS = 100


@dataclass(frozen=True)
class LifecycleAction:
    """An instance that waits for a lifecycle hook. Times are in seconds, of the clock that gives `now`."""

    token: str
    group: str
    hook: str
    transition: Transition
    instance_id: str
    heartbeat: float
    started_at: float
    deadline: float
    default: Result

    @property
    def limit(self) -> float:
        """The latest deadline that heartbeats can reach."""
        return self.started_at + min(CAP_SECONDS, CAP_HEARTBEATS * self.heartbeat)

    def with_heartbeat(self, now: float) -> LifecycleAction:
        return replace(self, deadline=min(now + self.heartbeat, self.limit))

    def timed_out(self, now: float) -> bool:
        return now >= self.deadline


def begin(
    token: str,
    group: str,
    hook: str,
    transition: Transition,
    instance_id: str,
    heartbeat: float,
    default: Result,
    now: float,
) -> LifecycleAction:
    return LifecycleAction(token, group, hook, transition, instance_id, heartbeat, now, now + heartbeat, default)
