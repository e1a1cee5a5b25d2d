"""Writes files so that each is complete or absent, even if the writer is killed; reads other users' files safely."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from dyntrain.training.host.durable import sync


def write_atomically(path: Path, text: str, mode: int = 0o644, owner: tuple[int, int] = (-1, -1)) -> None:
    """Replace a file so that readers see either the old or the new content. On return the new content is on disk.

    The content is first written to a temporary file. The temporary file's name contains host and process id, so two
    nodes that share a volume cannot mix their content. An existing file with the temporary file's name is removed
    first, since it may be a pipe, and opening a pipe would block.

    `owner` contains the user id and the group id that the file gets, where -1 leaves an id unchanged. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary_path = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}.tmp")
    temporary_path.unlink(missing_ok=True)
    try:
        descriptor = os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)  # os.open has applied the umask
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary_path, path)
    except BaseException:
        temporary_path.unlink(missing_ok=True)
        raise
    sync(path.parent)


def read_regular_file(path: Path, limit: int, *, follow: bool) -> bytes:
    """Read at most `limit` bytes of a file on the shared volume, which any user may have made.

    Raises OSError, also if the file is not a regular file, since reading a pipe could block forever. `follow` is True
    if the file may be a symbolic link.
    """
    return read_with_modification_time(path, limit, follow=follow)[0]


def read_with_modification_time(path: Path, limit: int, *, follow: bool) -> tuple[bytes, float]:
    """Return the content of a file, read as by `read_regular_file`, and the time of the file's last modification."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    with os.fdopen(descriptor, "rb") as file:
        file_status = os.fstat(descriptor)
        if not stat.S_ISREG(file_status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read(limit), file_status.st_mtime


def last_lines_of(path: Path, start_byte: int = 0, lines: int = 20, limit: int = 1500) -> str:
    """Return the last lines of a file after byte `start_byte`: at most `lines` lines and `limit` characters."""
    try:
        with path.open("rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(start_byte, size_bytes - 4 * limit))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-lines:])[-limit:]
