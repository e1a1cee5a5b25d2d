"""Find the causes of a standstill (a period without training steps) in a job's events. All functions of this module are
pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dyntrain.training import events
from dyntrain.training.events import Event

# For each type of event, the cause of the delay that the event ends. Other types of events end no delay.
_CAUSE_BY_EVENT_TYPE: dict[type[Any], str] = {
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
FIRST_STEP_CAUSE = "first_step"


@dataclass(frozen=True)
class Standstill:
    """A period without training steps, from one step to the next step; all times are in seconds since the
    Unix epoch.
    """

    began: float  # time of the last training step before the standstill
    ended: float  # time of the first training step after the standstill

    @property
    def duration_seconds(self) -> float:
        return self.ended - self.began

    def seconds_after(self, moment: float) -> float:
        """How many seconds of this standstill are after the time `moment`."""
        return max(0.0, self.ended - max(self.began, moment))


def standstill_causes(standstill: Standstill, events: Iterable[Event]) -> dict[str, float]:
    """How many seconds of the standstill each cause took. The cause `starts` lasts until processes have started and
    connected. The cause `patience` lasts until the coordinator has given up a lost node or decided how to continue. The
    cause `cool_down` lasts until a failed node is readmitted. The cause `coordinator` lasts until a coordinator runs
    again. The cause `formation` lasts until a generation of workers has formed. The cause `first_step` lasts from the
    last event to the next training step.
    """
    seconds_by_cause: dict[str, float] = {}
    cause_began_at = standstill.began
    for event in sorted(events, key=lambda event: event.at):
        cause = _CAUSE_BY_EVENT_TYPE.get(type(event))
        if cause is not None and cause_began_at <= event.at <= standstill.ended:
            seconds_by_cause[cause] = seconds_by_cause.get(cause, 0.0) + event.at - cause_began_at
            cause_began_at = event.at
    seconds_by_cause[FIRST_STEP_CAUSE] = standstill.ended - cause_began_at
    return {cause: round(seconds, 1) for cause, seconds in seconds_by_cause.items() if seconds >= 0.05}


def standstill_report(standstills: Iterable[Standstill], events: Iterable[Event], faults_end: float) -> dict[str, Any]:
    """The fields about standstills in a hunt's report. The fields describe the longest standstill with its causes, and
    the longest standstill after the last fault.
    """
    standstill_list = list(standstills)
    longest_standstill = max(standstill_list, key=lambda item: item.duration_seconds, default=Standstill(0.0, 0.0))
    return {
        "longest_stall_seconds": round(longest_standstill.duration_seconds, 1),
        "longest_stall_parts": standstill_causes(longest_standstill, events) if standstill_list else {},
        "longest_stall_after_faults_seconds": round(
            max((standstill.seconds_after(faults_end) for standstill in standstill_list), default=0.0), 1
        ),
    }
