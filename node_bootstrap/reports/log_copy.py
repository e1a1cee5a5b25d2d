"""Program that copies a growing log file to another file until it receives SIGTERM.

The program imports only the standard library. The log is copied by a separate program because the target is on the
shared volume, which may not answer for minutes. No other process waits for the copying program. The copying program
runs as the job's user, who owns the target's folder. A symbolic link in the target's folder therefore cannot make the
program write files that the job's user may not write.

The program's arguments are SOURCE START TARGET MOST. The file SOURCE is copied from byte START to the file TARGET. When
TARGET has more than MOST bytes, it is copied to TARGET.1 and truncated. TARGET is never replaced, so `tail -f` can
follow it without interruption. If SOURCE has become shorter, the module `child_log` has removed the front of SOURCE. A
SOURCE that has become shorter is read from its start again, so some lines are copied twice. Lines are lost only if
SOURCE grows, between two checks, by as many bytes as were removed (20 MB in half a second).
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
CHUNK_BYTES = 1024 * 1024
CHECKS_AFTER_SIGTERM = 2  # reads after SIGTERM: the worker ends at the same moment, and its last lines matter


def read_chunk(source: Path, position: int) -> tuple[bytes, int]:
    """Read at most CHUNK_BYTES of `source` after `position`; returns the bytes and the position after the last byte.

    Raises OSError.
    """
    with source.open("rb") as file:
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(position if position <= size_bytes else 0)
        chunk = file.read(CHUNK_BYTES)
        return chunk, file.tell()


def append_chunk(target: Path, chunk: bytes, max_bytes: int) -> None:
    """Append `chunk` to the file `target`. If OSError is raised, the file may contain a part of `chunk`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("ab") as file:
        if file.tell() > max_bytes:
            shutil.copyfile(target, target.with_name(f"{target.name}.1"))
            file.truncate(0)
        file.write(chunk)


def copy_until_sigterm(source: Path, position: int, target: Path, max_bytes: int) -> None:
    """Copy the bytes of `source` after `position`, and all bytes appended later, to `target` until SIGTERM."""
    received_signals: list[int] = []

    def on_sigterm(number: int, _frame: FrameType | None) -> None:
        received_signals.append(number)

    signal.signal(signal.SIGTERM, on_sigterm)
    last_error, checks_after_sigterm = "", 0
    while checks_after_sigterm < CHECKS_AFTER_SIGTERM:
        try:
            chunk, end_position = read_chunk(source, position) if source.exists() else (b"", position)
            if chunk:
                append_chunk(target, chunk, max_bytes)
                position, last_error = end_position, ""
                continue
            time.sleep(CHECK_SECONDS)
        except OSError as error:
            if last_error != str(error):
                last_error = str(error)
                print(f"cannot write {target}: {error}; will be retried", file=sys.stderr, flush=True)  # noqa: T201
            time.sleep(CHECK_SECONDS if received_signals else RETRY_SECONDS)
        checks_after_sigterm = checks_after_sigterm + 1 if received_signals else 0


if __name__ == "__main__":
    copy_until_sigterm(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
