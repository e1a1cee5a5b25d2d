"""Decides when a node that has lost its coordinator stops its worker. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from dyntrain.node_bootstrap.core.pacing import Backoff


class IsolationAction(Enum):
    WAIT = "wait"
    STOP = "stop the worker"
    ASK = "ask the controller"


@dataclass(frozen=True)
class IsolationState:
    """Connection state of a node.

    `lost_at` is None while the coordinator is connected; `asked_at` is None when the controller must be asked at once.
    """

    lost_at: float | None = None
    stopped: bool = False
    asks: int = 0
    asked_at: float | None = None


def decide(now: float, state: IsolationState, seconds: float, ask: Backoff) -> tuple[IsolationAction, float]:
    """Return the next action, and the time until which WAIT lasts (infinite: until the connection changes)."""
    if state.stopped:
        due = now if state.asked_at is None else state.asked_at + ask.delay(max(0, state.asks - 1))
        return (IsolationAction.ASK, now) if now >= due else (IsolationAction.WAIT, due)
    if state.lost_at is None:
        return IsolationAction.WAIT, math.inf
    due = state.lost_at + seconds
    return (IsolationAction.STOP, now) if now >= due else (IsolationAction.WAIT, due)
