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
    """Whether the node is connected to its coordinator, and what the node did since it lost the connection."""

    lost_at: float | None = None  # when the connection was lost; None: the node is connected
    worker_stopped: bool = False
    query_count: int = 0  # queries whether the controller wants the node
    queried_at: float | None = None  # time of the last query; None: the controller must be queried at once


def next_isolation_action(
    now: float, state: IsolationState, isolation_seconds: float, query_backoff: Backoff
) -> tuple[IsolationAction, float]:
    """Return the next action and a time: for WAIT, when the wait ends (infinity: never), otherwise `now`."""
    if state.worker_stopped:
        due_at = (
            now if state.queried_at is None else state.queried_at + query_backoff.delay(max(0, state.query_count - 1))
        )
        return (IsolationAction.ASK, now) if now >= due_at else (IsolationAction.WAIT, due_at)
    if state.lost_at is None:
        return IsolationAction.WAIT, math.inf
    due_at = state.lost_at + isolation_seconds
    return (IsolationAction.STOP, now) if now >= due_at else (IsolationAction.WAIT, due_at)
