"""Describes each event that the coordinator announces, in a log line for users."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from dyntrain.training import events


def describe(event: events.Event) -> str:
    match event:
        case events.Segment():
            metric_text = " ".join(f"{name}={value:.4f}" for name, value in event.metrics.items())
            heading = f"epoch {event.epoch} step {event.end.step} generation {event.generation}"
            return f"{heading} workers {event.workers} {event.rate:.0f} samples/s {metric_text}"
        case events.Forming(position=position):
            return (
                f"forming generation {event.number} at epoch {position.epoch} sample {position.offset}: {event.cause}; "
                f"{len(event.members)} workers, joining {_join(event.joining)}, leaving {_join(event.leaving)}"
            )
        case events.Formed():
            phase_text = " ".join(f"{name} {seconds:.2f} s" for name, seconds in event.phases.items())
            return f"formed generation {event.generation}: {phase_text}"
        case events.Pause():
            return f"survivors paused {event.seconds:.2f} s for generation {event.generation}"
        case events.Joined():
            return f"{event.instance} joined (generation {event.generation}, pid {event.pid})"
        case events.Left():
            return f"{event.instance} left"
        case events.WorkerLost() | events.WorkerRefused():
            return f"{event.instance} {_event_name(event)}: {event.reason}"
        case events.Stalled():
            return f"stalled: {event.reason}"
        case events.StallOver():
            return f"the stall is over after {event.seconds:.0f} s"
        case events.CoolingDown():
            return f"{event.instance} cools down for {event.seconds:.0f} s: {event.reason}"
        case events.TakenBack():
            return f"generation {event.generation} is cancelled before it began: {event.reason}"
        case events.Restart(commit=commit):
            commit_text = f"of step {commit.step} (epoch {commit.epoch})" if commit else "none"
            return f"restarting the workers; last commit: {commit_text}: {event.reason}"
        case events.ScriptFailed():
            return f"the script raised on {event.instance} at step {event.step}:\n{event.traceback}"
        case events.CommitFailed():
            return f"training goes on, but step {event.step} is not committed: {event.reason}"
        case events.ResultsUploaded():
            return f"results uploaded: {event.files} files, {event.size / 1e6:.1f} MB, in {event.seconds:.1f} s"
        case events.ResultsNotUploaded():
            return f"training goes on, but its results are not all in the bucket: {event.reason}"
        case events.CommitUnreadable(instead=earlier):
            replacement_text = (
                f"that of step {earlier.step} (epoch {earlier.epoch}) is used" if earlier else "no earlier one is left"
            )
            return f"commit of step {event.position.step} cannot be used, {replacement_text}: {event.reason}"
        case events.Failed():
            return f"job failed: {event.reason}"
        case events.Finished():
            return f"job finished at step {event.position.step}"
        case _:
            fields = event.model_dump(mode="json", exclude={"event", "version", "at"}, exclude_none=True)
            descriptions = [
                description for name, value in fields.items() if (description := _describe_field(name, value))
            ]
            return f"{_event_name(event)}: {', '.join(descriptions)}"


def _describe_field(name: str, value: Any) -> str:
    """Describe a field of an event: a true flag by its name, a false flag or an empty value by an empty text."""
    if isinstance(value, bool):
        return name if value else ""
    if name == "deadline":
        return f"{name} {datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%SZ}"
    formatted_value = _format_value(value)
    return f"{name} {formatted_value}" if formatted_value else ""


def _format_value(value: Any) -> str:
    match value:
        case float():
            return f"{value:.1f}"
        case dict():
            return " ".join(f"{name} {_format_value(item)}" for name, item in value.items())
        case list():
            return " ".join(map(_format_value, value))
        case _:
            return str(value)


def _event_name(event: events.Event) -> str:
    return event.event.replace("_", " ")


def _join(instances: Iterable[str]) -> str:
    return ", ".join(instances) or "none"
