"""Whose job it is: the claim on the shared volume, and a journal for each term in which a coordinator held the job.

A coordinator of another machine may still live when the next one takes over, so each writes a journal of its own. Before it reads the others,
the successor replaces the claim; after it has written a decision, and before anybody is told of it, a coordinator reads the claim again. So
whatever an overtaken one still decides was either read by its successor or is void. Opening a file by name asks the server also over NFS.

    journal.jsonl            term 0
    journal-<term>.jsonl     begins with {"kind": "term", "term", "instance", "of": {earlier journal: how many bytes of it count}}
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from training.ledger import JOURNAL, LineLog, read_lines

CLAIM = "claim.json"
_NAME = re.compile(r"journal-(\d+)\.jsonl")
Record = dict[str, Any]


class Overtaken(RuntimeError):
    """Another node holds the job in this or a later term; says which."""


def read_journal(ledger: Path) -> list[Record]:
    """What counts of all terms, in order; empty when there is no journal."""
    return _records(_counted(ledger))


def holder(records: list[Record]) -> str | None:
    """The instance whose coordinator journaled last; None where no term was recorded."""
    return next((record["instance"] for record in reversed(records) if record["kind"] == "term"), None)


class TermJournal:
    """The journal to append to. `term` None: no other machine can hold this job, as with `launch`.

    `records` is what counted before, `taken_over` the node that journaled last if it was another. Raises Overtaken when that is refused, OSError.
    """

    def __init__(self, ledger: Path, instance: str, term: int | None) -> None:
        self._ledger, self._claim = ledger, (term, instance)
        ledger.mkdir(parents=True, exist_ok=True)
        if term is not None:
            self._take(term, instance)
        counted = _counted(ledger)
        self.records = _records(counted)
        last = holder(self.records)
        self.taken_over = last if term is not None and last not in (None, instance) else None
        own = _journal(ledger, term or 0)
        if any(_term_of(path) > _term_of(own) for path in counted):
            raise Overtaken(f"{last} holds the job in a later term than {term}")
        self._log = LineLog(own, sync=True)
        if term is not None and not any(record["kind"] == "term" for record in read_lines(own)):
            sizes = {path.name: size for path, size in counted.items() if path != own}
            self._log.append({"kind": "term", "term": term, "instance": instance, "of": sizes})

    def append(self, record: Record) -> None:
        """On disk when it returns, and in force. Raises Overtaken when it is neither known nor will count."""
        self._log.append(record)
        self.check()

    def check(self) -> None:
        """Raises Overtaken."""
        present = _read_claim(self._ledger)
        if self._claim[0] is not None and present is not None and present != self._claim:
            raise Overtaken(f"{present[1]} has taken the job over in term {present[0]}")

    def close(self) -> None:
        self._log.close()

    def _take(self, term: int, instance: str) -> None:
        present = _read_claim(self._ledger)
        if present is not None and present != (term, instance) and present[0] >= term:
            raise Overtaken(
                f"{present[1]} holds the job in term {present[0]}, this node is nominated for term {term}: only the controller can change that"
            )
        partial = self._ledger / f".{CLAIM}.{instance}.{os.getpid()}"
        with partial.open("w") as file:
            json.dump({"term": term, "instance": instance}, file)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(self._ledger / CLAIM)
        handle = os.open(self._ledger, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _read_claim(ledger: Path) -> tuple[int, str] | None:
    try:
        claim = json.loads((ledger / CLAIM).read_text())
    except FileNotFoundError:
        return None
    return claim["term"], claim["instance"]


def _counted(ledger: Path) -> dict[Path, int]:
    """Each journal that counts and how many of its bytes do, oldest first: the latest that was begun says it of the others."""
    found = sorted((path for path in ledger.glob("journal*.jsonl") if path.name == JOURNAL or _NAME.fullmatch(path.name)), key=_term_of)
    while found:
        latest = found.pop()
        began = next(read_lines(latest), None)
        if _term_of(latest) == 0:
            return {latest: _whole(latest)}
        if began is not None and began["kind"] == "term":
            earlier = [path for path in found if path.name in began["of"]]
            return {**{path: began["of"][path.name] for path in earlier}, latest: _whole(latest)}
    return {}


def _journal(ledger: Path, term: int) -> Path:
    return ledger / (f"journal-{term:012d}.jsonl" if term else JOURNAL)


def _term_of(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else 0


def _whole(path: Path) -> int:
    """Without a torn last line, which never counted."""
    return path.read_bytes().rfind(b"\n") + 1


def _records(counted: dict[Path, int]) -> list[Record]:
    return [record for path, size in counted.items() for record in read_lines(path, size)]
