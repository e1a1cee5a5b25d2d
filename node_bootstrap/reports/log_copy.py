"""Copies a growing log to another file until SIGTERM. Run as a script by its path: imports only the standard library.

The copy is a separate program because its target is on a volume that may hang for minutes. No process waits for it. The
copy runs as the job's user, who owns the folder, so a symbolic link in the folder gives access to nothing more.

Arguments: SOURCE START TARGET MOST. SOURCE is copied from byte START. A TARGET of more than MOST bytes is copied to
TARGET.1 and truncated, so `tail -f` keeps following TARGET. If SOURCE becomes shorter, `child_log` has cut its front,
and SOURCE is read from its start: some lines then appear twice. Lines are lost only if SOURCE grows again by as much as
was cut between two checks (20 MB in half a second).
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType

CHECK_SECONDS = 0.5
RETRY_SECONDS = 5.0  # pause after an error, such as a full or missing volume
CHUNK = 1024 * 1024
LAST_CHECKS = 2  # checks after SIGTERM: the worker ends at the same moment, and its last lines matter


def read(source: Path, position: int) -> tuple[bytes, int]:
    """Read at most CHUNK bytes after `position`; returns these and their end's position. Raises OSError."""
    with source.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(position if position <= size else 0)
        piece = file.read(CHUNK)
        return piece, file.tell()


def append(target: Path, piece: bytes, max_bytes: int) -> None:
    """Append a piece. Raises OSError; the caller may then append the piece again, which may duplicate the piece."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("ab") as file:
        if file.tell() > max_bytes:
            shutil.copyfile(target, target.with_name(f"{target.name}.1"))
            file.truncate(0)
        file.write(piece)


def copy(source: Path, position: int, target: Path, max_bytes: int) -> None:
    """Copy new output of `source` to `target` until SIGTERM."""
    received_signals: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        received_signals.append(number)

    signal.signal(signal.SIGTERM, on_signal)
    last_error, last_checks = "", 0
    while last_checks < LAST_CHECKS:
        try:
            piece, end = read(source, position) if source.exists() else (b"", position)
            if piece:
                append(target, piece, max_bytes)
                position, last_error = end, ""
                continue
            time.sleep(CHECK_SECONDS)
        except OSError as error:
            if last_error != str(error):
                last_error = str(error)
                print(f"cannot write {target}: {error}; will be retried", file=sys.stderr, flush=True)  # noqa: T201
            time.sleep(CHECK_SECONDS if received_signals else RETRY_SECONDS)
        last_checks = last_checks + 1 if received_signals else 0


if __name__ == "__main__":
    copy(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
