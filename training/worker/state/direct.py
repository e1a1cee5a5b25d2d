"""Writing a large file without the page cache: copying it there takes more of the processor than training can spare,
and nobody reads it soon.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np

ALIGNMENT = 4096  # of memory, lengths and offsets: what every block device and page size in use accepts
CHUNK = 8 << 20


def write_synced(path: Path, block: bytes | bytearray | memoryview, trailer: bytes) -> None:
    """`block` and then `trailer`, on disk when it returns. Memory that is not aligned, and what the file system does
    not take without its cache, goes through the cache. Raises OSError; a part of the file may be there then.
    """
    view = memoryview(block)
    done = _write_direct(path, view) if np.frombuffer(view, np.uint8).ctypes.data % ALIGNMENT == 0 else 0
    with path.open("r+b" if done else "wb") as file:
        file.seek(done)
        file.write(view[done:])
        file.write(trailer)
        file.flush()
        os.fsync(file.fileno())


def _write_direct(path: Path, view: memoryview) -> int:
    """Returns how much of it is written: what fills whole blocks, or nothing where that is not to be had."""
    whole = len(view) // ALIGNMENT * ALIGNMENT
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_DIRECT, 0o666)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return 0
        raise
    done = 0
    try:
        while (
            done < whole and done % ALIGNMENT == 0
        ):  # a write may be cut short anywhere: the rest goes through the cache
            done += os.write(descriptor, view[done : min(done + CHUNK, whole)])
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
    return done
