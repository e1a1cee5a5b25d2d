"""The audit trail for the page: bounded, newest first, filtered, page by page. Pure."""

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
class Happening:
    """An event on the page. `number` grows by one with each event, and orders events for paging."""

    number: int
    at: float
    kind: str
    instance: str
    what: str
    detail: str

    def row(self) -> dict[str, Any]:
        return asdict(self)

    def contains_all(self, words: Sequence[str]) -> bool:
        text = f"{self.kind} {self.instance} {self.what} {self.detail}".casefold()
        return all(word in text for word in words)


@dataclass(frozen=True)
class Happenings:
    """Events, oldest first, `MAX_EVENTS` of them at most."""

    entries: tuple[Happening, ...] = ()

    @property
    def latest(self) -> int:
        return self.entries[-1].number if self.entries else 0

    def since(self, default: float) -> float:
        """The time from which to read new events; `default` while no events are known."""
        return self.entries[-1].at - OVERLAP_SECONDS if self.entries else default

    def with_new(self, read: Iterable[TrailEntry]) -> Happenings:
        """These events and the new events among `read`."""
        read_since = self.since(0.0)
        known_fields = {
            (event.at, event.kind, event.instance, event.what, event.detail) for event in self._backwards(read_since)
        }
        number, new = self.latest, []
        for entry in read:
            fields = _fields(entry)
            if fields not in known_fields:
                known_fields.add(fields)
                number += 1
                new.append(Happening(number, *fields))
        return Happenings((*self.entries, *new)[-MAX_EVENTS:]) if new else self

    def page(self, text: str, before: int | None, limit: int) -> dict[str, Any]:
        """One page, newest first: events that have all words of `text` and a number below `before`."""
        words = text.casefold().split()
        matching_events = (
            event
            for event in reversed(self.entries)
            if (before is None or event.number < before) and event.contains_all(words)
        )
        rows = [event.row() for event in islice(matching_events, limit + 1)]
        return {"rows": rows[:limit], "more": len(rows) > limit, "known": len(self.entries), "latest": self.latest}

    def _backwards(self, read_since: float) -> Iterable[Happening]:
        for event in reversed(self.entries):
            if event.at < read_since - OVERLAP_SECONDS:
                return
            yield event


def _fields(stored: TrailEntry) -> tuple[float, str, str, str, str]:
    text = entry_text(stored.entry)
    return stored.at, text.kind, text.instance, text.what, text.detail
