"""The events of a cluster's audit trail for the page, newest first, filtered by words and divided into pages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from dyntrain.controller.cli.text.trail import entry_text
from dyntrain.controller.loops.ports import TrailEntry

MAX_EVENTS = 100_000
OVERLAP_SECONDS = 10.0  # writers' clocks differ a little: entries read again are recognised by their text


@dataclass(frozen=True)
class Happening:  # one event of a cluster's audit trail
    """One event of a cluster's audit trail, as the page shows the event."""

    number: int  # grows by one with each event
    at: float  # the event's time
    kind: str  # the kind of event
    instance: str  # instance id, or "" for an event about no instance
    what: str  # a sentence that says what happened
    detail: str

    def row(self) -> dict[str, Any]:
        return asdict(self)

    def contains_all(self, words: Sequence[str]) -> bool:
        event_text = f"{self.kind} {self.instance} {self.what} {self.detail}".casefold()
        return all(word in event_text for word in words)


@dataclass(frozen=True)
class Happenings:  # events of a cluster's audit trail
    """The latest events of a cluster's audit trail, at most MAX_EVENTS, oldest first."""

    entries: tuple[Happening, ...] = ()  # oldest first

    @property
    def latest(self) -> int:  # number of the latest event
        return self.entries[-1].number if self.entries else 0

    def since(self, default: float) -> float:  # the time from which to read new events
        """The time from which to read new events of the audit trail, or `default` if no events are known."""
        return self.entries[-1].at - OVERLAP_SECONDS if self.entries else default

    def with_new(self, trail_entries: Iterable[TrailEntry]) -> Happenings:
        """Return the known events together with the events among `trail_entries` that are new."""
        read_since = self.since(0.0)
        known_event_fields = {
            (event.at, event.kind, event.instance, event.what, event.detail) for event in self._backwards(read_since)
        }
        last_number, new_events = self.latest, []
        for trail_entry in trail_entries:
            event_fields = _event_fields(trail_entry)
            if event_fields not in known_event_fields:
                known_event_fields.add(event_fields)
                last_number += 1
                new_events.append(Happening(last_number, *event_fields))
        return Happenings((*self.entries, *new_events)[-MAX_EVENTS:]) if new_events else self

    def page(self, text: str, before: int | None, limit: int) -> dict[str, Any]:
        """One page of at most `limit` events, newest first. Each event on the page contains all words of `text`, and
        has a number below `before` if `before` is given.
        """
        search_words = text.casefold().split()
        matching_events = (
            event
            for event in reversed(self.entries)
            if (before is None or event.number < before) and event.contains_all(search_words)
        )
        rows = [event.row() for event in islice(matching_events, limit + 1)]
        return {"rows": rows[:limit], "more": len(rows) > limit, "known": len(self.entries), "latest": self.latest}

    def _backwards(self, read_since: float) -> Iterable[Happening]:  # the events, newest first
        for event in reversed(self.entries):
            if event.at < read_since - OVERLAP_SECONDS:
                return
            yield event


def _event_fields(trail_entry: TrailEntry) -> tuple[float, str, str, str, str]:
    event_text = entry_text(trail_entry.entry)
    return trail_entry.at, event_text.kind, event_text.instance, event_text.what, event_text.detail
