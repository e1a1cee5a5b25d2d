"""The log file of child processes, kept below a size limit.

A child writes to the file directly and not through the bootstrap, so no line is delayed or lost while the bootstrap is
busy, stopped or killed. So the file must not be replaced. Its older part is copied to another file (`worker.log.1` is
the latest copy). Then the kernel removes that part from the front of the log while the child appends, so nothing is
lost (fallocate(2) with FALLOC_FL_COLLAPSE_RANGE, on ext4 and XFS). An interrupted copy is repeated: some lines may then
exist twice, but none is missing. The CloudWatch agent notices the shorter file and reads it from its start, so the
remaining lines (one block and the latest output) are sent again.
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

from dyntrain.node_bootstrap.host.files import tail

MAX_BYTES = 20 * 1024 * 1024
OLDER_FILES = 3  # files with older output
COLLAPSE_RANGE = 0x08
CHUNK = 1024 * 1024

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def collapse(descriptor: int, count: int) -> bool:
    """Remove the first `count` bytes of the file, atomically for all writers; returns False if that is unsupported.

    `count` must be a multiple of the file system's block size and less than the file's size. Raises OSError.
    """
    if _libc.fallocate(descriptor, COLLAPSE_RANGE, 0, count) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(code, os.strerror(code))


@dataclass(eq=False)
class ChildLog:
    """A log file of child processes.

    `cut` counts the bytes that this run removed from the front. Positions include them, so they stay valid after a cut.
    """

    path: Path
    cut: int = 0

    def text_since(self, position: int, lines: int = 20, limit: int = 1500) -> str:
        """Return the last `lines` written after `position`, at most `limit` characters; "" without output."""
        return tail(self.path, max(0, position - self.cut), lines, limit)

    def trim(
        self,
        max_bytes: int = MAX_BYTES,
        older_files: int = OLDER_FILES,
        remove_front: Callable[[int, int], bool] = collapse,
    ) -> bool:
        """Move all but the last block to older files if the log is longer than `max_bytes`; returns whether it was.

        At most the last `2 * max_bytes` bytes are kept. Where the file system cannot remove the front of a file, output
        written between the copy and the cut is lost. Raises OSError.
        """
        if not self.path.exists():
            return False
        with self.path.open("r+b", buffering=0) as file:
            size, block = os.fstat(file.fileno()).st_size, os.fstatvfs(file.fileno()).f_bsize
            count = (size - 1) // block * block
            if size <= max_bytes or count == 0:
                return False
            older_paths = [self.path.with_name(f"{self.path.name}.{number}") for number in range(older_files + 1)]
            older_paths[-1].unlink(missing_ok=True)  # first, since the disk may be full
            with older_paths[0].open("wb") as copy:
                _copy(file, copy, max(0, count - 2 * max_bytes), count)
                for number in range(older_files, 0, -1):
                    if older_paths[number - 1].exists():
                        older_paths[number - 1].replace(older_paths[number])
                if remove_front(file.fileno(), count):
                    self.cut += count
                else:
                    self.cut += _copy(file, copy, count, None)
                    file.truncate(0)
        return True


def _copy(source: FileIO, target: BinaryIO, start: int, end: int | None) -> int:
    """Copy the bytes from `start` to `end` (None: the end of the file) and flush; returns where the copy ended."""
    position = source.seek(start)
    while piece := source.read(CHUNK if end is None else min(CHUNK, end - position)):
        target.write(piece)
        position += len(piece)
    target.flush()
    return position
