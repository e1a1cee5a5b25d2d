"""A FIFO at its path: offered, taken by its first reader, then replaced by a guard FIFO that refuses others."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from dyntrain.training.feed.opened import Opened

RESUME, RESUMED = ".resume.json", ".resumed.json"  # after a FIFO's name: a rank's resume request, and its answer
_F_SETPIPE_SZ = 1031
PIPE_BYTES = 1024 * 1024  # between a feeder and its reader; the system limits what a user's pipes may hold together
MAX_REFUSAL_BYTES = 4096  # bytes of a refusal: the kernel writes so many at once, or nothing


class Fifo:
    """A FIFO and its path. Opening it never blocks: this process holds both ends until there is a reader."""

    def __init__(self, path: Path, opened: Opened) -> None:
        self.path, self._opened = path, opened
        self.end, self.watch = _make(path, opened)

    def take(self) -> int:
        """Take the FIFO after it was opened: put the guard at its path, and return the end to write into."""
        guard, watch = _make(self.path, self._opened)
        self._opened.done(self.watch)
        self._opened.forget(self.watch)
        write = os.open(f"/proc/self/fd/{self.end}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        enlarge(write)
        os.close(self.end)
        self.end, self.watch = guard, watch
        return write

    def turn_away(self, sentence: str) -> None:
        """Refuse those that opened the guard: they read `sentence`, which is no record. Then put up a new guard."""
        self._opened.done(self.watch)
        with contextlib.suppress(BlockingIOError):
            os.write(self.end, f"{sentence}\n".encode()[:MAX_REFUSAL_BYTES])
        self._opened.forget(self.watch)
        os.close(self.end)
        self.end, self.watch = _make(self.path, self._opened)

    def withdraw(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self._opened.forget(self.watch)
        os.close(self.end)


def enlarge(pipe: int) -> None:
    """Enlarge a pipe's buffer as far as the system permits."""
    for size in (PIPE_BYTES, PIPE_BYTES // 4):
        try:
            fcntl.fcntl(pipe, _F_SETPIPE_SZ, size)
            return
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EBUSY):
                raise


def _make(path: Path, opened: Opened) -> tuple[int, int]:
    """Create a FIFO and rename it into place: whoever opens the path gets either the old one or the new one.

    Returns its descriptor and its watch.
    """
    aside = path.with_name(f".{path.name}.made")
    with contextlib.suppress(FileNotFoundError):
        aside.unlink()
    os.mkfifo(aside, 0o600)
    end = os.open(aside, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    watch = opened.watch(end)
    aside.rename(path)
    return end, watch


def clear(root: Path) -> None:
    """Delete the FIFOs and resume files of an earlier run."""
    for path in root.iterdir():
        if stat.S_ISFIFO(path.lstat().st_mode) or path.name.endswith((RESUME, RESUMED)):
            path.unlink()
