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
    due_at: float  # for WAIT: time at which to decide again


def decide_after_crash(
    now: float, crashed_at: float, cools_until: float, connected: bool, own_restarts: tuple[float, ...], timing: Timing
) -> RestartDecision:
    """After a crash of the worker, decide whether the node waits, restarts the worker or gives up.

    `own_restarts` contains the times at which the node restarted the worker without an order of the coordinator. Before
    the time `cools_until`, the coordinator sends no order to restart the worker.
    """
    if connected:
        due_at = max(crashed_at, cools_until) + timing.restart_order_seconds
        return (
            RestartDecision(RestartAction.WAIT, RestartReason.ORDER_AWAITED, due_at)
            if now < due_at
            else RestartDecision(RestartAction.GIVE_UP, RestartReason.NO_ORDER, now)
        )
    recent_restarts = [
        restarted_at for restarted_at in own_restarts if now - restarted_at < timing.restart_window_seconds
    ]
    if len(recent_restarts) >= timing.max_own_restarts:
        return RestartDecision(RestartAction.GIVE_UP, RestartReason.BUDGET_SPENT, now)
    due_at = crashed_at + timing.own_restart_backoff.delay(len(recent_restarts))
    if now < due_at:
        return RestartDecision(RestartAction.WAIT, RestartReason.BACKING_OFF, due_at)
    return RestartDecision(RestartAction.START, RestartReason.NO_CHANNEL, now)
