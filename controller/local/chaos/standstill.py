"""Find the causes of a time without training steps in the job's events. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dyntrain.training import events
from dyntrain.training.events import Event

# For each type of event, the cause of the delay that the event ends. Other types of events end no delay.
_CAUSES: dict[type[Any], str] = {
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
FIRST_STEP = "first_step"


@dataclass(frozen=True)
class Standstill:
    """A time without training steps, from the last step before to the first step after, in seconds since the Unix
    epoch.
    """

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def after(self, moment: float) -> float:
        """The part of this time that comes after `moment`, in seconds."""
        return max(0.0, self.ended - max(self.began, moment))


def stall_causes(standstill: Standstill, events: Iterable[Event]) -> dict[str, float]:
    """Seconds of a standstill by cause. `starts`: until processes had started and connected. `patience`: until the
    coordinator gave up a lost node or decided how to continue. `cool_down`: until a failed node was readmitted.
    `coordinator`: until a coordinator was back. `formation`: until a generation had formed. `first_step`: from the last
    event to the next step.
    """
    seconds_by_cause: dict[str, float] = {}
    at = standstill.began
    for event in sorted(events, key=lambda event: event.at):
        cause = _CAUSES.get(type(event))
        if cause is not None and at <= event.at <= standstill.ended:
            seconds_by_cause[cause] = seconds_by_cause.get(cause, 0.0) + event.at - at
            at = event.at
    seconds_by_cause[FIRST_STEP] = standstill.ended - at
    return {cause: round(seconds, 1) for cause, seconds in seconds_by_cause.items() if seconds >= 0.05}


def stall_report(standstills: Iterable[Standstill], events: Iterable[Event], faults_ended: float) -> dict[str, Any]:
    """The report's fields about stalls: the longest stall with its causes, and the longest stall after the
    last fault.
    """
    stalls = list(standstills)
    longest = max(stalls, key=lambda standstill: standstill.seconds, default=Standstill(0.0, 0.0))
    return {
        "longest_stall_seconds": round(longest.seconds, 1),
        "longest_stall_parts": stall_causes(longest, events) if stalls else {},
        "longest_stall_after_faults_seconds": round(
            max((standstill.after(faults_ended) for standstill in stalls), default=0.0), 1
        ),
    }
