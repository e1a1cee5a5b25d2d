"""The ledger: what each worker was about to train on, and what the coordinator decided; together they prove that no
sample was lost.

A worker appends its intent before it pushes (`<instance>-<pid>.intents.jsonl`). The coordinator appends each
generation's first position and the job's end (`journal.jsonl`, see `terms`). An intent counts when its position lies
between its generation's start and the next one's: what a crash threw away lies beyond. Lines are appended whole; a torn
last line is one that never counted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dyntrain.training.events import Event, parse
from dyntrain.training.protocol.messages import Position
from dyntrain.training.records import Format, Record, Unreadable
from pydantic import Field, TypeAdapter

JOURNAL = "journal.jsonl"
INTENTS = ".intents.jsonl"
MOST_READ = 64_000_000  # bytes of events at once


class Intent(Record):
    """The samples that a worker was about to train on in one step; the names in the file are short, as it is long."""

    version: int = 1
    generation: int = Field(alias="g")
    epoch: int = Field(alias="e")
    offset: int = Field(alias="o")
    step: int = Field(alias="s")
    indices: tuple[int, ...] = Field(alias="i")


INTENT: Format[Intent] = Format("workers' ledger", 1, TypeAdapter(Intent))


class LineLog:
    """Appends JSON lines; `sync` makes each survive a power cut."""

    def __init__(self, path: Path, sync: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _end_torn_line(path)
        self._file = path.open("ab", buffering=0)
        self._sync = sync

    def append(self, record: dict[str, Any]) -> None:
        self.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")

    def write(self, line: bytes) -> None:
        self._file.write(line)
        if self._sync:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class EventLog:
    """What happened, for people and programs: in the job's own file, and in another that somebody asked for."""

    def __init__(self, own: Path, other: Path | None) -> None:
        self._logs = [LineLog(path) for path in (own, other) if path is not None]

    def append(self, event: Event) -> None:
        for log in self._logs:
            log.write(event.line())

    def close(self) -> None:
        for log in self._logs:
            log.close()


class IntentLog:
    def __init__(self, directory: Path, instance: str, pid: int) -> None:
        self._lines = LineLog(directory / f"{instance}-{pid}{INTENTS}")

    def intend(self, generation: int, position: Position, indices: Sequence[int]) -> None:
        intent = Intent(generation=generation, **position.model_dump(), indices=tuple(indices))
        self._lines.write(intent.line())

    def close(self) -> None:
        self._lines.close()


def read_events(path: Path) -> Iterator[Event]:
    """What `EventLog` wrote. Raises `records.Unreadable`."""
    return (parse(line, path) for line in read_lines(path))


class EventTail:
    """The events of a file, each once, also while it grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def next(self, *, skip_unknown: bool = False) -> list[Event]:
        """What has come since the last time, at most `MOST_READ` of it. Raises OSError, and `records.Unreadable` for
        what another version wrote, unless that is to be skipped. A line that is not whole yet comes the next time; one
        that a crash tore is passed over.
        """
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole, end, _ = file.read(MOST_READ).rpartition(b"\n")
        self._read += len(whole) + len(end)
        found = []
        for line in whole.splitlines():
            try:
                found.append(parse(json.loads(line), self._path))
            except Unreadable:
                if not skip_unknown:
                    raise
            except ValueError:
                continue
        return found


def read_intents(ledger: Path) -> Iterator[Intent]:
    """Of all workers. Raises `records.Unreadable`."""
    return (INTENT.parse(line, path) for path in sorted(ledger.glob(f"*{INTENTS}")) for line in read_lines(path))


def read_lines(path: Path, size: int | None = None) -> Iterator[dict[str, Any]]:
    """The whole lines of a log, or of its first `size` bytes; one that was torn by a crash is passed over."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if size is not None and file.tell() > size:
                return
            if line.endswith(b"\n"):
                try:
                    yield json.loads(line)
                except ValueError:
                    continue


def _end_torn_line(path: Path) -> None:
    """A writer that died in mid-line must not swallow the next writer's first line."""
    if path.exists() and path.stat().st_size:
        with path.open("rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
