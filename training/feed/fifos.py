"""A FIFO on its path: offered, taken by its first reader, and from then on a guard that turns others away."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from dyntrain.training.feed.opened import Opened

RESUME, RESUMED = ".resume.json", ".resumed.json"  # what a rank writes of a FIFO's name, and reads then
_F_SETPIPE_SZ = 1031
PIPE_BYTES = 1024 * 1024  # between a feeder and its reader; what an account may have at most is the system's to say
MOST_CALLED = 4096  # bytes of what is written at once, whole or not at all


class Fifo:
    """Nobody's open of it waits: this process holds both ends until a reader is there."""

    def __init__(self, path: Path, opened: Opened) -> None:
        self.path, self._opened = path, opened
        self.end, self.watch = _make(path, opened)

    def take(self) -> int:
        """After it was opened. Returns the end to write into; by its path now another FIFO is found, the guard."""
        guard, watch = _make(self.path, self._opened)
        self._opened.done(self.watch)
        self._opened.forget(self.watch)
        write = os.open(f"/proc/self/fd/{self.end}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        enlarge(write)
        os.close(self.end)
        self.end, self.watch = guard, watch
        return write

    def turn_away(self, sentence: str) -> None:
        """Those that opened the guard read `sentence`, which is no record; whoever comes later meets another guard."""
        self._opened.done(self.watch)
        with contextlib.suppress(BlockingIOError):
            os.write(self.end, f"{sentence}\n".encode()[:MOST_CALLED])
        self._opened.forget(self.watch)
        os.close(self.end)
        self.end, self.watch = _make(self.path, self._opened)

    def withdraw(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self._opened.forget(self.watch)
        os.close(self.end)


def enlarge(pipe: int) -> None:
    """As far as the system lets it."""
    for size in (PIPE_BYTES, PIPE_BYTES // 4):
        try:
            fcntl.fcntl(pipe, _F_SETPIPE_SZ, size)
            return
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EBUSY):
                raise


def _make(path: Path, opened: Opened) -> tuple[int, int]:
    """In place of what was there: whoever opens the path meets the one or the other."""
    aside = path.with_name(f".{path.name}.made")
    with contextlib.suppress(FileNotFoundError):
        aside.unlink()
    os.mkfifo(aside, 0o600)
    end = os.open(aside, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    watch = opened.watch(end)
    aside.rename(path)
    return end, watch


def clear(root: Path) -> None:
    """Of FIFOs that an earlier run has left, and of what its ranks said of them."""
    for path in root.iterdir():
        if stat.S_ISFIFO(path.lstat().st_mode) or path.name.endswith((RESUME, RESUMED)):
            path.unlink()
