"""The ledger: what each worker was about to train on, and what the coordinator decided; together they prove that no sample was lost.

A worker appends its intent before it pushes (`<instance>-<pid>.intents.jsonl`). The coordinator appends each generation's first position and the
job's end (`journal.jsonl`, see `terms`). An intent counts when its position lies between its generation's start and the next one's: what a crash
threw away lies beyond. Lines are appended whole; a torn last line is one that never counted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from training.protocol import Position

JOURNAL = "journal.jsonl"
INTENTS = ".intents.jsonl"


class LineLog:
    """Appends JSON lines; `sync` makes each survive a power cut."""

    def __init__(self, path: Path, sync: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _end_torn_line(path)
        self._file = path.open("ab", buffering=0)
        self._sync = sync

    def append(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        if self._sync:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class EventLog:
    """What happened, for people and programs: in the job's own file, and in another that somebody asked for."""

    def __init__(self, own: Path, other: Path | None) -> None:
        self._logs = [LineLog(path) for path in (own, other) if path is not None]

    def append(self, record: dict[str, Any]) -> None:
        for log in self._logs:
            log.append(record)

    def close(self) -> None:
        for log in self._logs:
            log.close()


class IntentLog:
    def __init__(self, directory: Path, instance: str, pid: int) -> None:
        self._lines = LineLog(directory / f"{instance}-{pid}{INTENTS}")

    def intend(self, generation: int, position: Position, indices: Sequence[int]) -> None:
        self._lines.append({"g": generation, "e": position.epoch, "o": position.offset, "s": position.step, "i": list(indices)})

    def close(self) -> None:
        self._lines.close()


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
