"""Compute the times at which a cluster's `leave_windows` open. Pure.

On days on which clocks change, the library cronsim follows the rules that the docstring of `LeaveWindow` describes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cronsim import CronSim
from dyntrain.controller.contract.leave_windows import LeaveWindow, zone


@dataclass(frozen=True)
class WindowOpening:
    """The time at which a leave window opens next."""

    at: float  # seconds since the epoch
    window: LeaveWindow  # the window that opens

    @property
    def text(self) -> str:  # the time, for people
        opening_time = datetime.fromtimestamp(self.at, zone(self.window.time_zone))
        return f"{opening_time.isoformat(timespec='minutes')} ({self.window.time_zone})"


def next_opening(windows: Iterable[LeaveWindow], now: float) -> WindowOpening | None:
    """The next time at which a leave window opens. Returns None if a window is open now, or if the cluster has no
    windows.
    """
    window_openings = []
    for window in windows:
        opens_at = opening_after(window, now - window.length.total_seconds())
        if opens_at <= now:
            return None
        window_openings.append(WindowOpening(opens_at, window))
    return min(window_openings, key=lambda opening: opening.at, default=None)


def opening_after(window: LeaveWindow, bound: float) -> float:
    """The first time after `bound` at which the window opens, in seconds since the epoch. When clocks go back, cronsim
    may return times before `bound`, because cronsim uses wall-clock times. This function skips times before `bound`.
    """
    search_start = datetime.fromtimestamp(bound, zone(window.time_zone))
    return next(
        opens_at
        for opening_time in CronSim(window.schedule, search_start)
        if (opens_at := opening_time.timestamp()) > bound
    )
