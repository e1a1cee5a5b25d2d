"""The audit trail as the page lists it: bounded, newest first, filtered, page by page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from dyntrain.controller.cli.text.trail import entry_text
from dyntrain.controller.loops.ports import TrailEntry

KEPT = 100_000
OVERLAP_SECONDS = 10.0  # writers' clocks differ a little: entries read again are recognised by their text


@dataclass(frozen=True)
class Happening:
    """An event on the page. `number` grows by one with each, and orders them for paging."""

    number: int
    at: float
    kind: str
    instance: str
    what: str
    detail: str

    def row(self) -> dict[str, Any]:
        return asdict(self)

    def has(self, words: Sequence[str]) -> bool:
        text = f"{self.kind} {self.instance} {self.what} {self.detail}".casefold()
        return all(word in text for word in words)


@dataclass(frozen=True)
class Happenings:
    """Events, oldest first, `KEPT` of them at most."""

    entries: tuple[Happening, ...] = ()

    @property
    def latest(self) -> int:
        return self.entries[-1].number if self.entries else 0

    def since(self, otherwise: float) -> float:
        """The time to read from: `otherwise` before there is any."""
        return self.entries[-1].at - OVERLAP_SECONDS if self.entries else otherwise

    def with_new(self, read: Iterable[TrailEntry]) -> Happenings:
        """The events with those among `read` that are new."""
        edge = self.since(0.0)
        known = {(one.at, one.kind, one.instance, one.what, one.detail) for one in self._backwards(edge)}
        number, new = self.latest, []
        for entry in read:
            fields = _fields(entry)
            if fields not in known:
                known.add(fields)
                number += 1
                new.append(Happening(number, *fields))
        return Happenings((*self.entries, *new)[-KEPT:]) if new else self

    def page(self, text: str, before: int | None, limit: int) -> dict[str, Any]:
        """One page, newest first: events that have all words of `text` and a number below `before`."""
        words = text.casefold().split()
        fitting = (one for one in reversed(self.entries) if (before is None or one.number < before) and one.has(words))
        rows = [one.row() for one in islice(fitting, limit + 1)]
        return {"rows": rows[:limit], "more": len(rows) > limit, "known": len(self.entries), "latest": self.latest}

    def _backwards(self, edge: float) -> Iterable[Happening]:
        for one in reversed(self.entries):
            if one.at < edge - OVERLAP_SECONDS:
                return
            yield one


def _fields(stored: TrailEntry) -> tuple[float, str, str, str, str]:
    text = entry_text(stored.entry)
    return stored.at, text.kind, text.instance, text.what, text.detail
