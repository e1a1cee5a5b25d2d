"""When a cluster's `leave_windows` are open. Pure.

On days when clocks change, cronsim follows Debian's rules, which `LeaveWindow` describes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cronsim import CronSim
from dyntrain.controller.contract.leave_windows import LeaveWindow, zone


@dataclass(frozen=True)
class Opening:
    """The next time at which a window opens, in seconds since the epoch."""

    at: float
    window: LeaveWindow

    @property
    def text(self) -> str:
        moment = datetime.fromtimestamp(self.at, zone(self.window.time_zone))
        return f"{moment.isoformat(timespec='minutes')} ({self.window.time_zone})"


def next_opening(windows: Iterable[LeaveWindow], now: float) -> Opening | None:
    """The next opening to wait for; None: a window is open, or the cluster has no windows."""
    openings = []
    for window in windows:
        at = opening_after(window, now - window.length.total_seconds())
        if at <= now:
            return None
        openings.append(Opening(at, window))
    return min(openings, key=lambda opening: opening.at, default=None)


def opening_after(window: LeaveWindow, bound: float) -> float:
    """The first opening later than `bound`. cronsim uses wall-clock times, so after clocks go back cronsim may return
    an opening that has passed.
    """
    start = datetime.fromtimestamp(bound, zone(window.time_zone))
    return next(at for moment in CronSim(window.schedule, start) if (at := moment.timestamp()) > bound)
