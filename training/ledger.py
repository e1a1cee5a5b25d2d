"""The ledger of workers' intents and the coordinator's decisions, which together prove that no sample was lost.

An intent lists the samples of a worker's next step. The worker appends the intent to `<instance>-<pid>.intents.jsonl`
before it pushes the step's gradients. The coordinator appends each generation's first position and the job's end to
`journal.jsonl` (see `terms`). An intent is valid if its position lies between the first positions of its generation and
of the next generation, so intents of discarded steps are void. Each line is appended in one write; an incomplete last
line is ignored.
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

JOURNAL = "journal.jsonl"  # name of the first journal
INTENTS = ".intents.jsonl"  # suffix of a file with intents
MOST_READ = 64_000_000  # most bytes of events that one call reads


class Intent(Record):
    """The samples of a worker's next step; the names of the fields are shortened in the file, to save space."""

    version: int = 1  # version of the ledger's format
    generation: int = Field(alias="g")  # number of the worker's generation
    epoch: int = Field(alias="e")  # epoch of the step, from 0
    offset: int = Field(alias="o")  # samples of the epoch before the step
    step: int = Field(alias="s")  # steps of the job before this step
    indices: tuple[int, ...] = Field(alias="i")  # numbers of the samples


INTENT_FORMAT: Format[Intent] = Format("workers' ledger", 1, TypeAdapter(Intent))


class LineLog:
    """Appends JSON lines to a file; with `sync` each line survives a power cut."""

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
    """Writes events to the job's own file, and also to a second file if the path of a second file is given."""

    def __init__(self, job_file: Path, second_file: Path | None) -> None:
        self._logs = [LineLog(path) for path in (job_file, second_file) if path is not None]

    def append(self, event: Event) -> None:
        for log in self._logs:
            log.write(event.line())

    def close(self) -> None:
        for log in self._logs:
            log.close()


class IntentLog:
    """Writes a worker's intents: the samples of each step before the step."""

    def __init__(self, directory: Path, instance: str, pid: int) -> None:
        self._lines = LineLog(directory / f"{instance}-{pid}{INTENTS}")

    def append_intent(self, generation: int, position: Position, indices: Sequence[int]) -> None:
        intent = Intent(generation=generation, **position.model_dump(), indices=tuple(indices))
        self._lines.write(intent.line())

    def close(self) -> None:
        self._lines.close()


def read_events(path: Path) -> Iterator[Event]:
    """Read the events that `EventLog` has written to a file. Raises `records.Unreadable`."""
    return (parse(line, path) for line in read_lines(path))


class EventTail:
    """Reads a growing file of events, and returns each event once."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def next(self, *, skip_unknown: bool = False) -> list[Event]:
        """Return the events that were added since the last call, from at most `MOST_READ` bytes.

        Raises OSError, and `records.Unreadable` for events of an unknown version, which are skipped with
        `skip_unknown`. An incomplete last line is left for the next call. A line that was cut off by a crash is
        skipped.
        """
        with self._path.open("rb") as file:
            file.seek(self._offset)
            complete_lines, newline, _ = file.read(MOST_READ).rpartition(b"\n")
        self._offset += len(complete_lines) + len(newline)
        new_events = []
        for line in complete_lines.splitlines():
            try:
                new_events.append(parse(json.loads(line), self._path))
            except Unreadable:
                if not skip_unknown:
                    raise
            except ValueError:
                continue
        return new_events


def read_intents(ledger: Path) -> Iterator[Intent]:
    """Read the intents of all workers from a ledger directory. Raises `records.Unreadable`."""
    return (INTENT_FORMAT.parse(line, path) for path in sorted(ledger.glob(f"*{INTENTS}")) for line in read_lines(path))


def read_lines(path: Path, size: int | None = None) -> Iterator[dict[str, Any]]:
    """Read the complete lines of a log, or of its first `size` bytes.

    A line that was cut off by a crash is skipped.
    """
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
    """Add a newline to a file's incomplete last line, so that the next record begins on a line of its own."""
    if path.exists() and path.stat().st_size:
        with path.open("rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
