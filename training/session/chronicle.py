"""Keeps the job's history for reports to the controller, of bounded size. Pure.

The history is made from announced events, so a restarted coordinator can rebuild the history from the events file.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dyntrain.controller.contract.job_history import (
    HISTORY_BYTES,
    METRICS_SHOWN,
    HistoryMark,
    HistoryPoint,
    JobHistory,
    JobProgress,
    Metrics,
    finite,
)
from dyntrain.controller.contract.reports import MAX_TEXT_LENGTH
from dyntrain.training import events

MAX_POINTS, MAX_MARKS = 96, 40  # limits of the history: points of its curves, and marks
LIVE_SECONDS = 15.0  # between two points of a curve if no boundary is reached
STALL_END_EVENTS = (  # events that end an earlier stall
    events.StallOver,
    events.Forming,
    events.Formed,
    events.Segment,
    events.Restart,
    events.Releasing,
    events.Recovered,
    events.Finished,
    events.Failed,
)
PACE_SECONDS = 600.0  # duration of recent progress from which the pace is computed
MAX_NAME, MAX_REASON, MAX_PHASES = 40, 120, 10  # limits of a mark: characters of name and reason, number of phases
MARKED_EVENTS = (  # events that become marks of the history
    events.Forming,
    events.Pause,
    events.Joined,
    events.Left,
    events.WorkerLost,
    events.WorkerRefused,
    events.TakenBack,
    events.Restart,
    events.Released,
    events.NodeNotice,
    events.Stalled,
    events.CoolingDown,
    events.ScriptFailed,
    events.CommitFailed,
    events.ResultsNotUploaded,
    events.CommitUnreadable,
    events.SafeStateUnreadable,
    events.Takeover,
    events.Finished,
    events.Failed,
)


@dataclass
class Chronicle:
    """The job's history: points of its curves and marks of its events, both limited in number."""

    points: list[HistoryPoint] = field(default_factory=list)
    marks: deque[HistoryMark] = field(default_factory=lambda: deque(maxlen=MAX_MARKS))
    counts: Counter[str] = field(default_factory=Counter)  # number of marked events, by event name
    paused: float = 0.0  # seconds of all pauses
    metrics: Metrics = field(default_factory=dict)  # the job's last metrics, by name
    metrics_epoch: int | None = None  # epoch of `metrics`
    silenced: dict[str, str] = field(default_factory=dict)  # how rules of the script's checks were silenced
    stalled: str = ""  # reason of the present stall
    pace: deque[tuple[float, float]] = field(default_factory=deque)  # points (time, fraction of the job done)

    @classmethod
    def from_events(cls, past_events: Iterable[events.Event]) -> Chronicle:
        chronicle = cls()
        for event in past_events:
            chronicle.record_event(event)
        return chronicle

    def record_event(self, event: events.Event) -> None:
        if isinstance(event, events.Stalled):
            self.stalled = event.reason
        elif isinstance(event, STALL_END_EVENTS):
            self.stalled = ""
        if isinstance(event, events.Segment):
            metrics = _rounded_metrics(event.metrics)
            if metrics:
                self.metrics, self.metrics_epoch = metrics, event.epoch
            self._add_point(event.at, event.epoch, event.end.step, event.workers, event.rate, metrics)
        elif isinstance(event, events.ChecksSilenced):
            silenced_rules = {code[:MAX_NAME]: reason[:MAX_REASON] for code, reason in event.rules.items()}
            self.silenced = dict([*(self.silenced | silenced_rules).items()][:MAX_MARKS])
        elif isinstance(event, MARKED_EVENTS):
            self.counts[event.event] += 1
            if isinstance(event, events.Pause):
                self.paused += event.seconds
            self.marks.append(mark_of(event))

    def record_progress(
        self, at: float, fraction: float | None, epoch: int, step: int, workers: int, rate: float
    ) -> None:
        """Record the job's progress between two boundaries; frequent calls are allowed."""
        if fraction is not None:
            self._record_pace(at, fraction)
        if rate > 0 and (not self.points or at - self.points[-1].at >= LIVE_SECONDS):
            self._add_point(at, epoch, step, workers, rate, {})

    def progress(self, fraction: float | None, now: float) -> JobProgress:
        eta = None if fraction is None else eta_seconds(tuple(self.pace), fraction, now)
        return JobProgress(
            fraction=None if fraction is None else _round_to_six_digits(fraction),
            eta_seconds=None if eta is None else round(eta, 1),
            metrics=self.metrics,
            metrics_epoch=self.metrics_epoch,
            silenced=self.silenced,
            stalled=self.stalled[:MAX_TEXT_LENGTH],
        )

    def history(self) -> JobHistory:
        """The history, reduced to at most HISTORY_BYTES by merging points and dropping the oldest marks."""
        points, marks = list(self.points), list(self.marks)
        while True:
            history = JobHistory(
                points=tuple(points),
                marks=tuple(marks),
                counts=dict(self.counts),
                paused_seconds=round(self.paused, 3),
            )
            size_bytes = len(history.model_dump_json().encode())
            if size_bytes <= HISTORY_BYTES:
                return history
            if len(marks) * 3 > len(points):
                marks = marks[1:]
            else:
                _merge_closest(points)

    def _add_point(self, at: float, epoch: int, step: int, workers: int, rate: float, metrics: Metrics) -> None:
        self.points.append(
            HistoryPoint(
                at=round(at, 1),
                epoch=epoch,
                step=step,
                workers=workers,
                samples_per_second=_round_to_six_digits(rate),
                metrics=metrics,
            )
        )
        if len(self.points) > MAX_POINTS:
            _merge_closest(self.points)

    def _record_pace(self, at: float, fraction: float) -> None:
        while self.pace and self.pace[-1][1] > fraction:  # rolled back
            self.pace.pop()
        if not self.pace or self.pace[-1][1] < fraction:
            if len(self.pace) > 1 and at - self.pace[-2][0] < 2.0:
                self.pace.pop()
            self.pace.append((at, fraction))
        while len(self.pace) > 2 and at - self.pace[0][0] > PACE_SECONDS:
            self.pace.popleft()


def eta_seconds(pace: Sequence[tuple[float, float]], fraction: float, now: float) -> float | None:
    """Estimate the job's remaining seconds from its recent pace.

    Of the time since the last point of `pace`, only the part that exceeds the mean time between points lowers the pace.
    """
    if fraction >= 1.0:
        return 0.0
    if pace and not pace[0][1]:  # the time before the first step does not show the pace
        pace = pace[1:]
    if len(pace) < 2:
        return None
    (first_time, first_fraction), (last_time, last_fraction) = pace[0], pace[-1]
    mean_interval = (last_time - first_time) / (len(pace) - 1)
    stalled_seconds = max(0.0, now - last_time - mean_interval)
    if last_fraction <= first_fraction or last_time <= first_time:
        return None
    rate = (last_fraction - first_fraction) / (last_time - first_time + stalled_seconds)
    return max(0.0, (1.0 - last_fraction) / rate - min(max(0.0, now - last_time), mean_interval))


def mark_of(event: events.Event) -> HistoryMark:
    """Make a mark of the history from an event's fields, with texts cut to a limited length."""
    event_fields = event.model_dump(
        include={"instance", "generation", "number", "seconds", "reason", "cause", "kind", "phases"}
    )
    generation = event_fields.get("generation", event_fields.get("number"))
    cause_text = " ".join(
        str(event_fields.get("reason") or event_fields.get("cause") or event_fields.get("kind") or "").split()
    )
    phase_seconds = {
        name[:MAX_NAME]: round(seconds, 4)
        for name, seconds in list(event_fields.get("phases", {}).items())[:MAX_PHASES]
    }
    seconds = event_fields.get("seconds")
    return HistoryMark(
        at=round(event.at, 1),
        event=event.event,
        instance=event_fields.get("instance", "")[:MAX_NAME],
        generation=generation,
        seconds=None if seconds is None else round(seconds, 3),
        reason=cause_text if len(cause_text) <= MAX_REASON else cause_text[: MAX_REASON - 3] + "...",
        phases=phase_seconds,
    )


def _merge_closest(points: list[HistoryPoint]) -> None:
    """Merge the two neighbouring points of a curve that together cover the shortest time.

    Merging the closest points keeps the remaining points evenly spaced. The curve's first and latest points are never
    merged.
    """
    closest_index = min(range(2, len(points) - 1), key=lambda i: points[i].at - points[i - 2].at)
    start_point, middle_point, end_point = points[closest_index - 2 : closest_index + 1]
    later_seconds, total_seconds = end_point.at - middle_point.at, end_point.at - start_point.at
    weight = later_seconds / total_seconds if total_seconds > 0 else 0.5
    rate = middle_point.samples_per_second * (1 - weight) + end_point.samples_per_second * weight
    merged_point = end_point.model_copy(
        update={
            "samples_per_second": _round_to_six_digits(rate),
            "metrics": {**middle_point.metrics, **end_point.metrics},
        }
    )
    points[closest_index - 1 : closest_index + 1] = [merged_point]


def _rounded_metrics(metrics: dict[str, float]) -> Metrics:
    return {
        name[:MAX_NAME]: None if finite(value) is None else _round_to_six_digits(value)
        for name, value in list(metrics.items())[:METRICS_SHOWN]
    }


def _round_to_six_digits(value: float) -> float:
    return float(f"{value:.6g}")
