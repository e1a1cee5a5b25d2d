"""What to do about a worker process that crashed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from node_bootstrap.pacing import Timing


class Step(Enum):
    WAIT = "wait"
    START = "start"
    GIVE_UP = "give up"


class Reason(Enum):
    ORDER_AWAITED = "the coordinator decides about the worker"
    GIVEN_UP = "the worker failed too often for the coordinator to wait for it"
    NO_ORDER = "the coordinator did not have the worker restarted in time"
    BACKING_OFF = "no coordinator is connected; the worker is restarted after a pause"
    NO_CHANNEL = "no coordinator is connected; the worker is restarted"
    BUDGET_SPENT = "the worker crashed too often"


@dataclass(frozen=True)
class Decision:
    step: Step
    reason: Reason
    due: float  # WAIT: look again then


def after_crash(now: float, crashed_at: float, cools_until: float, connected: bool, own_restarts: tuple[float, ...], timing: Timing) -> Decision:
    """`own_restarts` are the times at which the node restarted the worker without being told; before `cools_until` the coordinator orders nothing."""
    if connected:
        due = max(crashed_at, cools_until) + timing.order
        return Decision(Step.WAIT, Reason.ORDER_AWAITED, due) if now < due else Decision(Step.GIVE_UP, Reason.NO_ORDER, now)
    recent = [at for at in own_restarts if now - at < timing.restart_window]
    if len(recent) >= timing.restart_budget:
        return Decision(Step.GIVE_UP, Reason.BUDGET_SPENT, now)
    due = crashed_at + timing.own_restart.delay(len(recent))
    return Decision(Step.WAIT, Reason.BACKING_OFF, due) if now < due else Decision(Step.START, Reason.NO_CHANNEL, now)
