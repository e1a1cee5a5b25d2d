"""Files that are whole or absent, whatever dies while they are written."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from dyntrain.training.host.durable import sync


def write_atomically(path: Path, text: str, mode: int = 0o644, owner: tuple[int, int] = (-1, -1)) -> None:
    """Readers see the old content or the new, never a part; on return the new one is on disk. Raises OSError.

    The temporary name carries the process id, so that two writers (two nodes on a shared volume) cannot mix their
    halves. What stands there already, a left-over or what others put there (a pipe would hold its writer for ever), is
    removed and never opened.
    `owner`: user and group; -1 leaves them as they are.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)  # the umask has taken from it
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def read_regular(path: Path, limit: int, *, follow: bool) -> bytes:
    """What others may have put on the volume, at most `limit` bytes of it. Raises OSError, also for what is no regular
    file: a pipe would keep its reader for ever.

    `follow`: whether it may be reached by a link.
    """
    return read_dated(path, limit, follow=follow)[0]


def read_dated(path: Path, limit: int, *, follow: bool) -> tuple[bytes, float]:
    """The same, and when it was last written."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read(limit), found.st_mtime


def tail(path: Path, start: int = 0, lines: int = 20, limit: int = 1500) -> str:
    """The last `lines` of what was written after byte `start`, at most `limit` characters; empty when there is
    nothing.
    """
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start, end - 4 * limit))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-lines:])[-limit:]
