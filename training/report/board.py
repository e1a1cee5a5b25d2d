"""Convert a job's events to TensorBoard entries: curves over the job's steps, and texts about membership
changes. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import isfinite

from dyntrain.controller.contract.job_history import HistoryMark, JobHistory
from dyntrain.training import events

RATE_TAG, WORKERS_TAG, PAUSE_TAG = "job/samples_per_second", "job/workers", "job/pause_seconds"
CHANGES_TAG, NOTES_TAG = "job/changes", "job/notes"


@dataclass(frozen=True)
class Scalar:
    at: float  # Unix time
    step: int  # step of the job
    tag: str  # name of the curve
    value: float  # value of the curve at the step


@dataclass(frozen=True)
class Text:
    at: float  # Unix time
    step: int
    tag: str  # name of the series of texts
    text: str


@dataclass(frozen=True)
class Rollback:
    """Mark of a step from which training was undone and is repeated. TensorBoard drops its curves from `step` on."""

    at: float  # Unix time
    step: int


Entry = Scalar | Text | Rollback


@dataclass
class Board:
    """Converter of a job's events, one by one, into TensorBoard entries."""

    step: int = 0  # last step reached
    over: bool = False  # whether the job has ended
    _changes: dict[int, str] = field(default_factory=dict)

    def entries_of(self, event: events.Event) -> Iterator[Entry]:
        """Yield the TensorBoard entries for `event`, which must be the job's next event."""
        self.over = self.over or isinstance(event, events.Finished | events.Failed)
        match event:
            case events.Segment():
                self.step = event.end.step
                yield from _segment_entries(event.at, self.step, event.rate, event.workers, event.metrics)
            case events.Forming():
                if event.position.step < self.step:
                    yield Rollback(event.at, event.position.step + 1)
                self.step = event.position.step
                yield Text(event.at, self.step, CHANGES_TAG, _change_text(event))
            case events.Pause():
                yield Scalar(event.at, self.step, PAUSE_TAG, event.seconds)
            case (
                events.Restart()
                | events.Failed()
                | events.WorkerLost()
                | events.CommitFailed()
                | events.ResultsNotUploaded()
            ):
                yield Text(event.at, self.step, NOTES_TAG, f"{_as_words(event.event)}: {event.reason}")
            case events.ScriptFailed():
                yield Text(event.at, self.step, NOTES_TAG, f"{_as_words(event.event)}\n\n{_as_code(event.traceback)}")
            case _:
                pass


def entries_of_history(history: JobHistory, after: float) -> Iterator[Entry]:
    """Yield TensorBoard entries for all points and marks after the time `after` in the history that a job's report
    contains.
    """
    times_and_steps = [(point.at, point.step) for point in history.points]
    for point in history.points:
        if point.at > after:
            metrics = {name: value for name, value in point.metrics.items() if value is not None}
            yield from _segment_entries(point.at, point.step, point.samples_per_second, point.workers, metrics)
    for mark in history.marks:
        if mark.at > after:
            step = max((step for at, step in times_and_steps if at <= mark.at), default=0)
            yield from _mark_entries(mark, step)


def latest_time(history: JobHistory) -> float:
    """Return the time of the latest point or mark in a job's history, or 0 if the history has neither
    points nor marks.
    """
    return max([0.0, *(point.at for point in history.points), *(mark.at for mark in history.marks)])


def _segment_entries(at: float, step: int, rate: float, workers: int, metrics: dict[str, float]) -> Iterator[Scalar]:
    yield Scalar(at, step, RATE_TAG, rate)
    yield Scalar(at, step, WORKERS_TAG, float(workers))
    for name, value in metrics.items():
        if isfinite(value):  # any other value leaves a gap in the curve
            yield Scalar(at, step, f"metrics/{name}", value)


def _mark_entries(mark: HistoryMark, step: int) -> Iterator[Entry]:
    if mark.event == "pause" and mark.seconds is not None:
        yield Scalar(mark.at, step, PAUSE_TAG, mark.seconds)
    elif mark.event == "forming":
        yield Text(mark.at, step, CHANGES_TAG, f"generation {mark.generation}: {mark.reason}")
    elif mark.reason:
        instance_text = f" {mark.instance}" if mark.instance else ""
        yield Text(mark.at, step, NOTES_TAG, f"{_as_words(mark.event)}{instance_text}: {mark.reason}")


def _change_text(event: events.Forming) -> str:
    lines = [f"generation {event.number}, {len(event.members)} workers: {event.cause}"]
    lines += [
        f"- {heading} {', '.join(instance_ids)}" for heading, instance_ids in _membership_lists(event) if instance_ids
    ]
    return "\n".join(lines)


def _membership_lists(event: events.Forming) -> Iterable[tuple[str, tuple[str, ...]]]:
    return (("joining", event.joining), ("leaving", event.leaving))


def _as_words(name: str) -> str:
    return name.replace("_", " ")


def _as_code(text: str) -> str:
    """Return the text as a code block in Markdown, which TensorBoard shows."""
    return "\n".join(f"    {line}" for line in text.splitlines())
