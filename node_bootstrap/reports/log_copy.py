"""Copies a growing log to another file until SIGTERM. Run as a script by its path: imports only the standard library.

It is a separate program because the target is on a volume that may hang for minutes, and nobody waits for this process.
It runs as the job's user, who owns the folder, so a symbolic link placed there gives access to nothing more.

argv: SOURCE START TARGET MOST. Copies SOURCE from byte START. A TARGET of more than MOST bytes is copied to TARGET.1
and truncated, so `tail -f` keeps following it. A SOURCE that became shorter was cut at its front (`child_log`), and is
read from its start: a moment's lines appear twice. None is lost, unless the file has grown again by as much between two
checks (20 MB in half a second).
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType

LOOK_SECONDS = 0.5
AGAIN_SECONDS = 5.0  # after an error of the volume: it is full, or not there
CHUNK = 1024 * 1024
LAST_LOOKS = 2  # checks after SIGTERM: the worker ends at the same moment, and its last lines matter


def read(source: Path, position: int) -> tuple[bytes, int]:
    """Read at most a chunk after `position`; returns it and where it ends. Raises OSError."""
    with source.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(position if position <= size else 0)
        piece = file.read(CHUNK)
        return piece, file.tell()


def append(target: Path, piece: bytes, most: int) -> None:
    """Append a piece. Raises OSError; the piece can then be appended again, and is doubled at worst."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("ab") as file:
        if file.tell() > most:
            shutil.copyfile(target, target.with_name(f"{target.name}.1"))
            file.truncate(0)
        file.write(piece)


def copy(source: Path, position: int, target: Path, most: int) -> None:
    """Copy until SIGTERM."""
    ending: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        ending.append(number)

    signal.signal(signal.SIGTERM, end)
    last_error, looks = "", 0
    while looks < LAST_LOOKS:
        try:
            piece, after = read(source, position) if source.exists() else (b"", position)
            if piece:
                append(target, piece, most)
                position, last_error = after, ""
                continue
            time.sleep(LOOK_SECONDS)
        except OSError as error:
            if last_error != str(error):
                last_error = str(error)
                print(f"cannot write {target}: {error}; will be retried", file=sys.stderr, flush=True)  # noqa: T201
            time.sleep(LOOK_SECONDS if ending else AGAIN_SECONDS)
        looks = looks + 1 if ending else 0


if __name__ == "__main__":
    copy(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
