"""Files that are complete or absent, even when their writer is killed."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from dyntrain.training.host.durable import sync


def write_atomically(path: Path, text: str, mode: int = 0o644, owner: tuple[int, int] = (-1, -1)) -> None:
    """Replace a file so that readers see the old or the new content. On return the new content is on disk.

    The temporary name contains the process id, so two writers (two nodes on a shared volume) cannot mix their content.
    An existing file of the temporary name is removed and never opened: a pipe would block its writer forever.

    `owner`: user and group; -1 leaves them unchanged. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)  # os.open has applied the umask
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def read_regular(path: Path, limit: int, *, follow: bool) -> bytes:
    """Read at most `limit` bytes of a file on the volume that anybody may have put there.

    Raises OSError, also for anything but a regular file: a pipe would block its reader forever. `follow`: whether a
    symbolic link is allowed.
    """
    return read_dated(path, limit, follow=follow)[0]


def read_dated(path: Path, limit: int, *, follow: bool) -> tuple[bytes, float]:
    """Read as `read_regular` does; also returns the time of the last modification."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read(limit), status.st_mtime


def tail(path: Path, start: int = 0, lines: int = 20, limit: int = 1500) -> str:
    """Return the last `lines` written after byte `start`, at most `limit` characters; "" without output."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start, end - 4 * limit))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-lines:])[-limit:]
