"""Copies what comes to a log to a file elsewhere, until it is told to end. Run as a script by its path, so it imports
the standard library alone.

A program of its own: the file is on a volume that may hang for minutes, and nobody waits for this one; and it runs as
the job's user, who owns the folder, so that a link laid there leads to nothing that this user could not write anyway.

argv: SOURCE START TARGET MOST. SOURCE is copied from byte START on. A TARGET that has more than MOST bytes becomes
TARGET.1, in place of the one before, and begins again as the same file: `tail -f` follows on. A SOURCE that became
shorter was cut at its front (`child_log`), and is read from there: a moment's lines come twice. None is left out,
unless it has grown by as much again between two looks, which takes 20 MB in half a second.
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
AGAIN_SECONDS = 5.0  # after the volume's no: it is full, or not there
CHUNK = 1024 * 1024
LAST_LOOKS = 2  # at the end: the worker ends at the same moment, and its last words count


def read(source: Path, position: int) -> tuple[bytes, int]:
    """What comes after `position`, at most a chunk, and where that ends. Raises OSError."""
    with source.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(position if position <= size else 0)
        piece = file.read(CHUNK)
        return piece, file.tell()


def append(target: Path, piece: bytes, most: int) -> None:
    """Raises OSError, with nothing lost: the same piece may be given again, and is then there twice at worst."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("ab") as file:
        if file.tell() > most:
            shutil.copyfile(target, target.with_name(f"{target.name}.1"))
            file.truncate(0)
        file.write(piece)


def copy(source: Path, position: int, target: Path, most: int) -> None:
    """Until SIGTERM."""
    ending: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        ending.append(number)

    signal.signal(signal.SIGTERM, end)
    said, looks = "", 0
    while looks < LAST_LOOKS:
        try:
            piece, after = read(source, position) if source.exists() else (b"", position)
            if piece:
                append(target, piece, most)
                position, said = after, ""
                continue
            time.sleep(LOOK_SECONDS)
        except OSError as error:
            if said != str(error):
                said = str(error)
                print(f"{target} takes nothing: {error}; it is tried again", file=sys.stderr, flush=True)  # noqa: T201
            time.sleep(LOOK_SECONDS if ending else AGAIN_SECONDS)
        looks = looks + 1 if ending else 0


if __name__ == "__main__":
    copy(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
