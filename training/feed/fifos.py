"""Creates FIFOs for one reader each: once a FIFO is opened, a new FIFO (guard) at its path refuses further readers."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from dyntrain.training.feed.opened import FifoWatcher

RESUME_SUFFIX, ANSWER_SUFFIX = ".resume.json", ".resumed.json"  # of a rank's resume request, and of the answer
_F_SETPIPE_SZ = 1031
PIPE_BYTES = 1024 * 1024  # of a pipe's buffer; the system limits the total of all pipes of a user
MAX_REFUSAL_BYTES = 4096  # of a refusal: the kernel writes at most so many bytes in one piece


class Fifo:
    """A FIFO (named pipe) at a path in the file system.

    A program that opens the path never blocks, as the feed holds both ends of the FIFO open.
    """

    def __init__(self, path: Path, watcher: FifoWatcher) -> None:
        self.path, self._watcher = path, watcher
        self.descriptor, self.watch = _create_fifo(path, watcher)

    def replace_by_guard(self) -> int:
        """Put a guard in the place of the FIFO, which a reader has opened. Returns the opened FIFO's write end."""
        guard_end, watch = _create_fifo(self.path, self._watcher)
        self._watcher.mark_handled(self.watch)
        self._watcher.stop_watching(self.watch)
        write_end = os.open(f"/proc/self/fd/{self.descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        enlarge(write_end)
        os.close(self.descriptor)
        self.descriptor, self.watch = guard_end, watch
        return write_end

    def refuse_readers(self, sentence: str) -> None:
        """Write `sentence`, which is no record, to the processes that opened the guard.

        Finally, create a new guard at the path.
        """
        self._watcher.mark_handled(self.watch)
        with contextlib.suppress(BlockingIOError):
            os.write(self.descriptor, f"{sentence}\n".encode()[:MAX_REFUSAL_BYTES])
        self._watcher.stop_watching(self.watch)
        os.close(self.descriptor)
        self.descriptor, self.watch = _create_fifo(self.path, self._watcher)

    def withdraw(self) -> None:  # deletes the FIFO
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self._watcher.stop_watching(self.watch)
        os.close(self.descriptor)


def enlarge(pipe: int) -> None:
    """Enlarge a pipe's buffer as far as the system permits."""
    for pipe_bytes in (PIPE_BYTES, PIPE_BYTES // 4):
        try:
            fcntl.fcntl(pipe, _F_SETPIPE_SZ, pipe_bytes)
            return
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EBUSY):
                raise


def _create_fifo(path: Path, watcher: FifoWatcher) -> tuple[int, int]:
    """Create a FIFO and rename it to `path`, so that the path always leads to either the old FIFO or the new FIFO.

    Returns the new FIFO's descriptor and its inotify watch number.
    """
    new_path = path.with_name(f".{path.name}.made")
    with contextlib.suppress(FileNotFoundError):
        new_path.unlink()
    os.mkfifo(new_path, 0o600)
    descriptor = os.open(new_path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    watch = watcher.watch(descriptor)
    new_path.rename(path)
    return descriptor, watch


def delete_old_fifos(root: Path) -> None:
    """Delete the FIFOs, resume requests and answers that an earlier run left."""
    for path in root.iterdir():
        if stat.S_ISFIFO(path.lstat().st_mode) or path.name.endswith((RESUME_SUFFIX, ANSWER_SUFFIX)):
            path.unlink()
