"""Whose job it is: the claim on the shared volume, and a journal for each term in which a coordinator held the job.

A coordinator of another machine may still live when the next one takes over, so each writes a journal of its own.
Before it reads the others, the successor replaces the claim; after it has written a decision, and before anybody is
told of it, a coordinator reads the claim again. So whatever an overtaken one still decides was either read by its
successor or is void. Opening a file by name asks the server also over NFS.

    journal.jsonl            term 0
    journal-<term>.jsonl     begins with `TermBegun`: whose it is, and how many bytes of each earlier journal count
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from dyntrain.training.coordinator.whole_file import write_whole
from dyntrain.training.journal import FORMAT, Entry, TermBegun
from dyntrain.training.ledger import JOURNAL, LineLog, read_lines
from dyntrain.training.records import Format, Record, Unreadable
from pydantic import TypeAdapter

CLAIM = "claim.json"
_NAME = re.compile(r"journal-(\d+)\.jsonl")


class TermClaim(Record):
    """Whose job it is, until a later term is claimed."""

    version: int = 1
    term: int
    instance: str


_CLAIM: Format[TermClaim] = Format("claim to a job", 1, TypeAdapter(TermClaim))


class Overtaken(RuntimeError):
    """Another node holds the job in this or a later term; says which."""


def read_journal(ledger: Path) -> list[Entry]:
    """What counts of all terms, in order; empty when there is no journal. Raises `records.Unreadable`."""
    return _entries(_counted(ledger))


def holder(entries: list[Entry]) -> str | None:
    """The instance whose coordinator journaled last; None where no term was recorded."""
    return next((entry.instance for entry in reversed(entries) if isinstance(entry, TermBegun)), None)


class TermJournal:
    """The journal to append to. `term` None: no other machine can hold this job, as with `launch`.

    `entries` is what counted before, `taken_over` the node that journaled last if it was another. Raises Overtaken when
    that is refused, `records.Unreadable`, OSError.
    """

    def __init__(self, ledger: Path, instance: str, term: int | None) -> None:
        self._ledger, self._claim = ledger, (term, instance)
        ledger.mkdir(parents=True, exist_ok=True)
        read_journal(ledger)  # what this release cannot read it must not claim
        if term is not None:
            self._take(term, instance)
        counted = _counted(ledger)
        self.entries = _entries(counted)
        last = holder(self.entries)
        self.taken_over = last if term is not None and last not in (None, instance) else None
        own = _journal(ledger, term or 0)
        if any(_term_of(path) > _term_of(own) for path in counted):
            raise Overtaken(f"{last} holds the job in a later term than {term}")
        self._log = LineLog(own, sync=True)
        if term is not None and not any(isinstance(entry, TermBegun) for entry in _read(own)):
            sizes = {path.name: size for path, size in counted.items() if path != own}
            self._log.write(TermBegun(term=term, instance=instance, of=sizes).line())

    def append(self, entry: Entry) -> None:
        """On disk when it returns, and in force. Raises Overtaken when it is neither known nor will count."""
        self._log.write(entry.line())
        self.check()

    def check(self) -> None:
        """Raises Overtaken."""
        try:
            present = _read_claim(self._ledger)
        except Unreadable as error:  # it was well understood when this coordinator made its own
            raise Overtaken(str(error)) from error
        if self._claim[0] is not None and present is not None and present != self._claim:
            raise Overtaken(f"{present[1]} has taken the job over in term {present[0]}")

    def close(self) -> None:
        self._log.close()

    def _take(self, term: int, instance: str) -> None:
        present = _read_claim(self._ledger)
        if present is not None and present != (term, instance) and present[0] >= term:
            raise Overtaken(
                f"{present[1]} holds the job in term {present[0]}, this node is nominated for term {term}: only "
                "the controller can change that"
            )
        write_whole(self._ledger / CLAIM, TermClaim(term=term, instance=instance).line())


def _read_claim(ledger: Path) -> tuple[int, str] | None:
    """Raises `records.Unreadable`."""
    path = ledger / CLAIM
    try:
        claim = _CLAIM.parse(json.loads(path.read_text()), path)
    except FileNotFoundError:
        return None
    return claim.term, claim.instance


def _counted(ledger: Path) -> dict[Path, int]:
    """Each journal that counts and how many of its bytes do, oldest first: the latest that was begun says it of the
    others.
    """
    journals = sorted(
        (path for path in ledger.glob("journal*.jsonl") if path.name == JOURNAL or _NAME.fullmatch(path.name)),
        key=_term_of,
    )
    while journals:
        latest = journals.pop()
        began = next(_read(latest), None)
        if _term_of(latest) == 0:
            return {latest: _whole(latest)}
        if isinstance(began, TermBegun):
            counted = {path: began.of[path.name] for path in journals if path.name in began.of}
            return {**counted, latest: _whole(latest)}
    return {}


def _journal(ledger: Path, term: int) -> Path:
    return ledger / (f"journal-{term:012d}.jsonl" if term else JOURNAL)


def _term_of(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else 0


def _whole(path: Path) -> int:
    """Without a torn last line, which never counted."""
    return path.read_bytes().rfind(b"\n") + 1


def _entries(counted: dict[Path, int]) -> list[Entry]:
    return [entry for path, size in counted.items() for entry in _read(path, size)]


def _read(path: Path, size: int | None = None) -> Iterator[Entry]:
    return (FORMAT.parse(line, path) for line in read_lines(path, size))
