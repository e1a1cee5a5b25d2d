"""Writing of a large file without the page cache.

Copying it into the cache takes more CPU time than training can spare, and nobody reads it soon.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np

ALIGNMENT = 4096  # of memory, lengths and offsets: what every block device and page size in use accepts
CHUNK = 8 << 20


def write_synced(path: Path, block: bytes | bytearray | memoryview, trailer: bytes) -> None:
    """Write `block` and then `trailer` to a file; both are on disk on return.

    Memory that is not aligned, and what the file system does not accept without its cache, goes through the cache.
    Raises OSError; a part of the file may exist then.
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
    """Write the whole blocks of `view` directly; return the bytes written, 0 if that is not supported."""
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
