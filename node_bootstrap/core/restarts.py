"""Decides whether a node restarts its crashed worker process. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dyntrain.node_bootstrap.core.pacing import Timing


class RestartAction(Enum):
    WAIT = "wait"
    START = "start"
    GIVE_UP = "give up"


class RestartReason(Enum):
    ORDER_AWAITED = "the coordinator decides about the worker"
    GIVEN_UP = "the worker failed too often for the coordinator to wait for it"
    NO_ORDER = "the coordinator did not order a restart of the worker in time"
    BACKING_OFF = "no coordinator is connected; the worker is restarted after a pause"
    NO_CHANNEL = "no coordinator is connected; the worker is restarted"
    BUDGET_SPENT = "the worker crashed too often"


@dataclass(frozen=True)
class RestartDecision:
    action: RestartAction
    reason: RestartReason
    due: float  # WAIT: decide again at this time


def after_crash(
    now: float, crashed_at: float, cools_until: float, connected: bool, own_restarts: tuple[float, ...], timing: Timing
) -> RestartDecision:
    """Decide whether to wait, to restart the worker or to give up.

    `own_restarts`: times at which the node restarted the worker without an order. The coordinator gives no order before
    `cools_until`.
    """
    if connected:
        due = max(crashed_at, cools_until) + timing.order
        return (
            RestartDecision(RestartAction.WAIT, RestartReason.ORDER_AWAITED, due)
            if now < due
            else RestartDecision(RestartAction.GIVE_UP, RestartReason.NO_ORDER, now)
        )
    recent = [at for at in own_restarts if now - at < timing.restart_window]
    if len(recent) >= timing.restart_budget:
        return RestartDecision(RestartAction.GIVE_UP, RestartReason.BUDGET_SPENT, now)
    due = crashed_at + timing.own_restart.delay(len(recent))
    if now < due:
        return RestartDecision(RestartAction.WAIT, RestartReason.BACKING_OFF, due)
    return RestartDecision(RestartAction.START, RestartReason.NO_CHANNEL, now)
