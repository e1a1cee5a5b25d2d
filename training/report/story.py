"""Story of a job: all data that its report page shows, made from its events or from the history in its latest report.
Pure.
"""

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
    """Results of the training segment that ended at the time `at`; a metric that was NaN or infinite is None."""

    at: float  # Unix time
    epoch: int  # number of the epoch
    workers: int  # number of workers
    rate: float  # samples a second
    metrics: Mapping[str, float | None]  # values by the metric's name


@dataclass(frozen=True)
class MembershipChange:
    """A membership change: the generation that was formed or attempted, its cause and its pause."""

    at: float  # Unix time
    generation: int | None  # number of the generation
    cause: str  # why the workers changed
    epoch: int | None = None  # number of the epoch
    joining: tuple[str, ...] = ()  # ids of the joining instances
    leaving: tuple[str, ...] = ()  # ids of the leaving instances
    pause: float | None = None  # seconds in which the remaining workers waited
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds of each phase, by name
    restarted: bool = False  # whether all workers were restarted
    outcome: str = ""  # why the change did not take place


@dataclass(frozen=True)
class Note:
    """An event other than a membership change that the report lists, such as a lost worker."""

    at: float  # Unix time
    what: str  # kind of the event
    instance: str  # id of the instance
    text: str  # reason or traceback


@dataclass(frozen=True)
class Story:
    """All data that a report shows.

    A story is made from all events of a job, or from the short history that the job's latest report contains.
    """

    name: str  # name of the job
    whole: bool  # whether the story is made from all events
    began: float  # Unix time of the job's first event
    ended: float  # Unix time of the job's last event
    outcome: str  # how the job ended, or that it still runs
    points: tuple[Point, ...]  # results of the training segments
    changes: tuple[MembershipChange, ...]  # membership changes
    notes: tuple[Note, ...]  # other events that the report lists
    counts: Mapping[str, int]  # number of events of each kind
    paused: float  # seconds of all pauses
    samples: int | None = None  # samples trained on
    hours: Mapping[str, float] = field(default_factory=dict)  # each instance's hours as a member
    start_seconds: float | None = None  # median time from a worker's start until it is ready

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for point in self.points for name in point.metrics))

    @property
    def restarts_avoided(self) -> int:
        """Number of completed membership changes in which the remaining workers were not restarted."""
        return sum(change.pause is not None and not change.restarted for change in self.changes)


_NOTED_EVENTS = (
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
_NOTED_KINDS = {kind.model_fields["event"].default for kind in _NOTED_EVENTS}


def story_of_events(name: str, job_events: Iterable[events.Event]) -> Story:
    """Make a job's story from all its events so far; the job may still run. Raises ValueError if there are
    no events.
    """
    all_events = list(job_events)
    if not all_events:
        raise ValueError("the job has no events yet")
    segments = [event for event in all_events if isinstance(event, events.Segment)]
    pauses = [event for event in all_events if isinstance(event, events.Pause)]
    ready_seconds = [
        event.seconds
        for event in all_events
        if isinstance(event, events.WorkerReady) and event.seconds and not event.spare
    ]
    return Story(
        name=name,
        whole=True,
        began=all_events[0].at,
        ended=all_events[-1].at,
        outcome=_outcome_of(all_events),
        points=tuple(_point_of(segment) for segment in segments),
        changes=_changes_of(all_events),
        notes=tuple(_note_of(event) for event in all_events if isinstance(event, _NOTED_EVENTS)),
        counts=Counter(event.event for event in all_events),
        paused=sum(pause.seconds for pause in pauses),
        samples=sum(segment.samples for segment in segments),
        hours=_member_hours(all_events),
        start_seconds=median(ready_seconds) if ready_seconds else None,
    )


def story_of_report(report: JobReport) -> Story:
    """Make a job's story from the history in its latest report. Raises ValueError if the report has no history."""
    history = report.history
    if history is None or not (history.points or history.marks):
        raise ValueError(
            f"the reports of {report.job} contain no history: use the job's events.jsonl on the shared volume"
        )
    times = [point.at for point in history.points] + [mark.at for mark in history.marks]
    pauses = {mark.generation: mark for mark in history.marks if mark.event == "pause"}
    restarted_generations = {mark.generation for mark in history.marks if mark.event == "restart"}
    changes = tuple(
        MembershipChange(
            mark.at,
            mark.generation,
            mark.reason,
            pause=pauses[mark.generation].seconds if mark.generation in pauses else None,
            phases=pauses[mark.generation].phases if mark.generation in pauses else {},
            restarted=mark.generation is not None and mark.generation - 1 in restarted_generations,
        )
        for mark in history.marks
        if mark.event == "forming"
    )
    failure_reasons = [mark.reason for mark in history.marks if mark.event == "failed"]
    return Story(
        name=report.job,
        whole=False,
        began=min(report.started_at, *times),
        ended=max(times),
        outcome=f"failed: {failure_reasons[-1]}" if report.state == "failed" and failure_reasons else report.state,
        points=tuple(
            Point(point.at, point.epoch, point.workers, point.samples_per_second, dict(point.metrics))
            for point in history.points
        ),
        changes=changes,
        notes=tuple(
            Note(mark.at, mark.event, mark.instance, mark.reason)
            for mark in history.marks
            if mark.event in _NOTED_KINDS
        ),
        counts=history.counts,
        paused=history.paused_seconds,
    )


def _outcome_of(all_events: Sequence[events.Event]) -> str:
    for event in reversed(all_events):
        if isinstance(event, events.Finished):
            return "finished"
        if isinstance(event, events.Failed):
            return f"failed: {event.reason}"
    return "not over when this was written"


def _point_of(segment: events.Segment) -> Point:
    metrics = {name: finite(value) for name, value in segment.metrics.items()}
    return Point(segment.at, segment.epoch, segment.workers, segment.rate, metrics)


def _changes_of(all_events: Sequence[events.Event]) -> tuple[MembershipChange, ...]:
    changes: dict[int, MembershipChange] = {}
    workers_restarted = False
    for event in all_events:
        match event:
            case events.Restart():
                workers_restarted = True
            case events.Forming():
                changes[event.number] = MembershipChange(
                    at=event.at,
                    generation=event.number,
                    cause=event.cause,
                    epoch=event.position.epoch,
                    joining=event.joining,
                    leaving=event.leaving,
                    restarted=workers_restarted,
                )
                workers_restarted = False
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


def _note_of(event: events.Event) -> Note:
    fields = event.model_dump(include={"instance", "reason", "kind", "traceback", "former"})
    text = fields.get("traceback") or fields.get("reason") or fields.get("kind") or fields.get("former") or ""
    return Note(event.at, event.event, fields.get("instance", ""), str(text))


def _member_hours(all_events: Sequence[events.Event]) -> dict[str, float]:
    hours_by_instance: dict[str, float] = {}
    members: tuple[str, ...] = ()
    formed_at = all_events[0].at
    for event in all_events:
        if isinstance(event, events.Forming | events.Restart | events.Finished | events.Failed):
            for instance_id in members:
                hours_by_instance[instance_id] = (
                    hours_by_instance.get(instance_id, 0.0) + max(0.0, event.at - formed_at) / 3600
                )
            formed_at, members = event.at, event.members if isinstance(event, events.Forming) else ()
    for instance_id in members:
        hours_by_instance[instance_id] = (
            hours_by_instance.get(instance_id, 0.0) + max(0.0, all_events[-1].at - formed_at) / 3600
        )
    return hours_by_instance
