"""Story of a job: all data that its report shows, from its events or from the history in its reports. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from dyntrain.controller.contract.job_history import finite
from dyntrain.controller.contract.reports import JobReport
from dyntrain.training import events


@dataclass(frozen=True)
class Point:
    """Results of the training segment that ended at the time `at`; a metric that was not a number is None."""

    at: float
    epoch: int
    workers: int
    rate: float
    metrics: Mapping[str, float | None]


@dataclass(frozen=True)
class Change:
    """A membership change: the generation that was formed or attempted, its cause and its pause.

    `pause`: seconds in which the remaining workers waited, or None if unknown.
    """

    at: float
    generation: int | None
    cause: str
    epoch: int | None = None
    joining: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    pause: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    restarted: bool = False
    outcome: str = ""


@dataclass(frozen=True)
class Note:
    """Another event that the report lists."""

    at: float
    what: str
    instance: str
    text: str


@dataclass(frozen=True)
class Story:
    """All data that a report shows.

    `whole`: made from all events, not from the bounded history in reports. `hours`: each instance's hours as a member.
    """

    name: str
    whole: bool
    began: float
    ended: float
    outcome: str
    points: tuple[Point, ...]
    changes: tuple[Change, ...]
    notes: tuple[Note, ...]
    counts: Mapping[str, int]
    paused: float
    samples: int | None = None
    hours: Mapping[str, float] = field(default_factory=dict)
    start_seconds: float | None = None  # median time from a worker's start until it is ready

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for point in self.points for name in point.metrics))

    @property
    def kept(self) -> int:
        """Number of completed changes in which no worker was restarted."""
        return sum(change.pause is not None and not change.restarted for change in self.changes)


_NOTED = (
    events.WorkerLost,
    events.WorkerRefused,
    events.Restart,
    events.Takeover,
    events.NodeNotice,
    events.CoolingDown,
    events.ScriptFailed,
    events.CommitFailed,
    events.ResultsNotUploaded,
    events.CommitUnreadable,
    events.SafeStateUnreadable,
    events.Failed,
)
_NOTED_KINDS = {kind.model_fields["event"].default for kind in _NOTED}


def story_of_events(name: str, job_events: Iterable[events.Event]) -> Story:
    """Make the story from a job's events; the job may still run. Raises ValueError without events."""
    all_events = list(job_events)
    if not all_events:
        raise ValueError("the job has no events yet")
    segments = [event for event in all_events if isinstance(event, events.Segment)]
    pauses = [event for event in all_events if isinstance(event, events.Pause)]
    ready_seconds = [e.seconds for e in all_events if isinstance(e, events.WorkerReady) and e.seconds and not e.spare]
    return Story(
        name=name,
        whole=True,
        began=all_events[0].at,
        ended=all_events[-1].at,
        outcome=_outcome(all_events),
        points=tuple(_point(segment) for segment in segments),
        changes=_changes(all_events),
        notes=tuple(_note(event) for event in all_events if isinstance(event, _NOTED)),
        counts=Counter(event.event for event in all_events),
        paused=sum(pause.seconds for pause in pauses),
        samples=sum(segment.samples for segment in segments),
        hours=_hours(all_events),
        start_seconds=median(ready_seconds) if ready_seconds else None,
    )


def story_of_report(report: JobReport) -> Story:
    """Make the story from the job's latest report. Raises ValueError if the report has no history."""
    history = report.history
    if history is None or not (history.points or history.marks):
        raise ValueError(f"the reports of {report.job} carry no history; use its events.jsonl on the shared volume")
    moments = [point.at for point in history.points] + [mark.at for mark in history.marks]
    pauses = {mark.generation: mark for mark in history.marks if mark.event == "pause"}
    restarted = {mark.generation for mark in history.marks if mark.event == "restart"}
    changes = tuple(
        Change(
            mark.at,
            mark.generation,
            mark.reason,
            pause=pauses[mark.generation].seconds if mark.generation in pauses else None,
            phases=pauses[mark.generation].phases if mark.generation in pauses else {},
            restarted=mark.generation is not None and mark.generation - 1 in restarted,
        )
        for mark in history.marks
        if mark.event == "forming"
    )
    failure_reasons = [mark.reason for mark in history.marks if mark.event == "failed"]
    return Story(
        name=report.job,
        whole=False,
        began=min(report.started_at, *moments),
        ended=max(moments),
        outcome=f"failed: {failure_reasons[-1]}" if report.state == "failed" and failure_reasons else report.state,
        points=tuple(Point(p.at, p.epoch, p.workers, p.samples_per_second, dict(p.metrics)) for p in history.points),
        changes=changes,
        notes=tuple(Note(m.at, m.event, m.instance, m.reason) for m in history.marks if m.event in _NOTED_KINDS),
        counts=history.counts,
        paused=history.paused_seconds,
    )


def _outcome(all_events: Sequence[events.Event]) -> str:
    for event in reversed(all_events):
        if isinstance(event, events.Finished):
            return "finished"
        if isinstance(event, events.Failed):
            return f"failed: {event.reason}"
    return "not over when this was written"


def _point(segment: events.Segment) -> Point:
    metrics = {name: finite(value) for name, value in segment.metrics.items()}
    return Point(segment.at, segment.epoch, segment.workers, segment.rate, metrics)


def _changes(all_events: Sequence[events.Event]) -> tuple[Change, ...]:
    changes: dict[int, Change] = {}
    restarted = False
    for event in all_events:
        match event:
            case events.Restart():
                restarted = True
            case events.Forming():
                changes[event.number] = Change(
                    at=event.at,
                    generation=event.number,
                    cause=event.cause,
                    epoch=event.position.epoch,
                    joining=event.joining,
                    leaving=event.leaving,
                    restarted=restarted,
                )
                restarted = False
            case events.Pause(generation=number) if number in changes:
                phases = dict(event.phases)
                changes[number] = replace(changes[number], pause=event.seconds, phases=phases)
            case events.TakenBack(generation=number) if number in changes:
                changes[number] = replace(changes[number], outcome=f"taken back: {event.reason}")
            case events.Formed(generation=number) if number in changes and not changes[number].phases:
                changes[number] = replace(changes[number], phases=dict(event.phases))
            case _:
                pass
    return tuple(changes.values())


def _note(event: events.Event) -> Note:
    fields = event.model_dump(include={"instance", "reason", "kind", "traceback", "former"})
    text = fields.get("traceback") or fields.get("reason") or fields.get("kind") or fields.get("former") or ""
    return Note(event.at, event.event, fields.get("instance", ""), str(text))


def _hours(all_events: Sequence[events.Event]) -> dict[str, float]:
    hours: dict[str, float] = {}
    members: tuple[str, ...] = ()
    formed_at = all_events[0].at
    for event in all_events:
        if isinstance(event, events.Forming | events.Restart | events.Finished | events.Failed):
            for instance in members:
                hours[instance] = hours.get(instance, 0.0) + max(0.0, event.at - formed_at) / 3600
            formed_at, members = event.at, event.members if isinstance(event, events.Forming) else ()
    for instance in members:
        hours[instance] = hours.get(instance, 0.0) + max(0.0, all_events[-1].at - formed_at) / 3600
    return hours
