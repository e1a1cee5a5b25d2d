"""Keeps the log files of child processes below a size limit.

A child process writes to the log file directly and not through the node's program, so no line is delayed or lost while
that program is busy, stopped or killed. The child process keeps the log file open, so the log file must not be replaced
while the child runs. When the log is too long, its older part is copied to another file (for `worker.log`, the latest
copy is `worker.log.1`). The kernel removes the copied part from the front of the log. No line is lost if a child
process appends lines while the kernel removes the copied part. The copied part is removed by fallocate(2) with
FALLOC_FL_COLLAPSE_RANGE, which exists on ext4 and XFS. An interrupted copy is repeated, so some lines may be copied
twice, but no line is missing. When a log has become shorter, the CloudWatch agent reads the log again from its start,
and so sends the remaining lines (one block and the latest output) again.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from dyntrain.node_bootstrap.host.files import last_lines_of

MAX_BYTES = 20 * 1024 * 1024  # size of a log file above which its older part is moved to another file
OLDER_FILES = 3  # number of files kept with older output
COLLAPSE_RANGE = 0x08  # FALLOC_FL_COLLAPSE_RANGE of fallocate(2)
CHUNK_BYTES = 1024 * 1024

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def remove_first_bytes(descriptor: int, count: int) -> bool:
    """Remove the first `count` bytes of the file, atomically for all writers.

    Returns False if the file system or the kernel cannot remove the front of a file. `count` must be a multiple of the
    file system's block size and less than the file's size. Raises OSError.
    """
    if _libc.fallocate(descriptor, COLLAPSE_RANGE, 0, count) == 0:
        return True
    error_number = ctypes.get_errno()
    if error_number in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(error_number, os.strerror(error_number))


@dataclass(eq=False)
class ChildLog:
    """A log file to which child processes write, and whose front may be removed.

    A position in the log includes the bytes that were removed from the file's front, so a removal changes no position.
    """

    path: Path
    removed_bytes: int = 0  # bytes that this run of the node's program removed from the front of the file

    def text_since(self, position: int, lines: int = 20, limit: int = 1500) -> str:
        """Return the log's last lines after the position `position`: at most `lines` lines and `limit` characters."""
        return last_lines_of(self.path, max(0, position - self.removed_bytes), lines, limit)

    def trim(
        self,
        max_bytes: int = MAX_BYTES,
        older_files: int = OLDER_FILES,
        remove_front: Callable[[int, int], bool] = remove_first_bytes,
    ) -> bool:
        """If the log is longer than `max_bytes`, move all but its last block to another file.

        Returns whether the log was shortened. The file with the older part contains at most the last `2 * max_bytes`
        bytes of the moved part. If the file system cannot remove the front of a file, lines that are written after the
        older part is copied and before it is removed are lost. Raises OSError.
        """
        if not self.path.exists():
            return False
        with self.path.open("r+b", buffering=0) as file:
            size_bytes, block_bytes = os.fstat(file.fileno()).st_size, os.fstatvfs(file.fileno()).f_bsize
            removable_bytes = (size_bytes - 1) // block_bytes * block_bytes
            if size_bytes <= max_bytes or removable_bytes == 0:
                return False
            older_paths = [
                self.path.with_name(f"{self.path.name}.{file_number}") for file_number in range(older_files + 1)
            ]
            older_paths[-1].unlink(missing_ok=True)  # first, since the disk may be full
            with older_paths[0].open("wb") as older_file:
                _copy(file, older_file, max(0, removable_bytes - 2 * max_bytes), removable_bytes)
                for file_number in range(older_files, 0, -1):
                    if older_paths[file_number - 1].exists():
                        older_paths[file_number - 1].replace(older_paths[file_number])
                if remove_front(file.fileno(), removable_bytes):
                    self.removed_bytes += removable_bytes
                else:
                    self.removed_bytes += _copy(file, older_file, removable_bytes, None)
                    file.truncate(0)
        return True


def _copy(source: FileIO, target: BinaryIO, start: int, end: int | None) -> int:
    """Copy the bytes of `source` from `start` to `end` (None: to the end of the file) to `target`, and flush `target`.

    Returns the position after the last copied byte.
    """
    position = source.seek(start)
    while chunk := source.read(CHUNK_BYTES if end is None else min(CHUNK_BYTES, end - position)):
        target.write(chunk)
        position += len(chunk)
    target.flush()
    return position
