"""The file that child processes write their output to, kept within a bound.

A child writes to the file itself and not through the bootstrap: so no line waits for it or dies with it, whether it is
busy, stopped or killed. The price is that the file cannot be exchanged for another one. What is old is copied to a file
beside it (`worker.log.1`, the latest), and then the kernel takes it off the front of the file (fallocate(2),
FALLOC_FL_COLLAPSE_RANGE; ext4 and XFS can), while the child goes on writing at the end: nothing is lost in between. A
copy that was cut short is made again, so that some lines may be there twice, but never none of them. The CloudWatch
agent sees a file that became shorter and reads it from its start: what stayed there, a block and a moment's output, is
sent again.
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
KEPT = 3  # older files beside it
COLLAPSE_RANGE = 0x08
CHUNK = 1024 * 1024

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def collapse(descriptor: int, count: int) -> bool:
    """Take the first `count` bytes off the file, in one step for everybody who writes to it; False where its file
    system cannot. Raises OSError.

    `count` must be whole blocks of the file system, and less than the file.
    """
    if _libc.fallocate(descriptor, COLLAPSE_RANGE, 0, count) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(code, os.strerror(code))


@dataclass(eq=False)
class ChildLog:
    """`cut` counts the bytes that this life took off the front. Positions count from there, so they stay right when it
    takes more.
    """

    path: Path
    cut: int = 0

    def said_since(self, position: int, lines: int = 20, limit: int = 1500) -> str:
        """The last `lines` of what was written after `position`, at most `limit` characters; empty when there is
        nothing.
        """
        return tail(self.path, max(0, position - self.cut), lines, limit)

    def trim(self, most: int = MAX_BYTES, kept: int = KEPT, cutter: Callable[[int, int], bool] = collapse) -> bool:
        """Whether the file was longer than `most` bytes; then all but its last block is beside it now. Of a flood the
        last `2 * most` are kept.

        Where the file system cannot cut, what a child writes between the end of the copy and the cut is lost. Raises
        OSError.
        """
        if not self.path.exists():
            return False
        with self.path.open("r+b", buffering=0) as file:
            size, block = os.fstat(file.fileno()).st_size, os.fstatvfs(file.fileno()).f_bsize
            count = (size - 1) // block * block
            if size <= most or count == 0:
                return False
            older = [self.path.with_name(f"{self.path.name}.{number}") for number in range(kept + 1)]
            older[-1].unlink(missing_ok=True)  # first: the disk may be full
            with older[0].open("wb") as copy:
                _copy(file, copy, max(0, count - 2 * most), count)
                for number in range(kept, 0, -1):
                    if older[number - 1].exists():
                        older[number - 1].replace(older[number])
                if cutter(file.fileno(), count):
                    self.cut += count
                else:
                    self.cut += _copy(file, copy, count, None)
                    file.truncate(0)
        return True


def _copy(source: FileIO, target: BinaryIO, start: int, end: int | None) -> int:
    """From byte `start` to `end` (None: the end of the file); returns where it ended, with all of it out of this
    process.
    """
    at = source.seek(start)
    while piece := source.read(CHUNK if end is None else min(CHUNK, end - at)):
        target.write(piece)
        at += len(piece)
    target.flush()
    return at
