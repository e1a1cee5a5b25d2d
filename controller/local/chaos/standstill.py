"""The causes of a time without any step, from the job's events. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dyntrain.training import events
from dyntrain.training.events import Event

# What was waited for until such an event came. Those that are not here happen beside it.
_WAITED_FOR: dict[type[Any], str] = {
    events.WorkerStarted: "starts",
    events.WorkerReady: "starts",
    events.NodeReady: "starts",
    events.WorkerLost: "patience",
    events.NodeLost: "patience",
    events.Releasing: "patience",
    events.Released: "patience",
    events.Restart: "patience",
    events.Forming: "patience",
    events.CoolingDown: "patience",
    events.Readmitted: "cool_down",
    events.Recovered: "coordinator",
    events.Takeover: "coordinator",
    events.Formed: "formation",
    events.Joined: "formation",
    events.Pause: "formation",
}
LAST = "first_step"


@dataclass(frozen=True)
class Standstill:
    """A time without steps, from the last one before to the first one after: seconds since the epoch."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def after(self, moment: float) -> float:
        """The seconds of it after the moment."""
        return max(0.0, self.ended - max(self.began, moment))


def parts(still: Standstill, events: Iterable[Event]) -> dict[str, float]:
    """Seconds by cause: `starts` of processes and connections; `patience`, until somebody was given up or the
    coordinator had decided; `cool_down`; `coordinator`, until one was back; `formation`; `first_step`.
    """
    seconds_by_kind: dict[str, float] = {}
    at = still.began
    for event in sorted(events, key=lambda event: event.at):
        kind = _WAITED_FOR.get(type(event))
        if kind is not None and at <= event.at <= still.ended:
            seconds_by_kind[kind] = seconds_by_kind.get(kind, 0.0) + event.at - at
            at = event.at
    seconds_by_kind[LAST] = still.ended - at
    return {kind: round(seconds, 1) for kind, seconds in seconds_by_kind.items() if seconds >= 0.05}


def stall_report(times: Iterable[Standstill], events: Iterable[Event], faults_ended: float) -> dict[str, Any]:
    """The report's lines: the longest stall, and the longest after the last fault."""
    stalls = list(times)
    longest = max(stalls, key=lambda still: still.seconds, default=Standstill(0.0, 0.0))
    return {
        "longest_stall_seconds": round(longest.seconds, 1),
        "longest_stall_parts": parts(longest, events) if stalls else {},
        "longest_stall_after_faults_seconds": round(
            max((still.after(faults_ended) for still in stalls), default=0.0), 1
        ),
    }
