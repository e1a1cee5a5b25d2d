"""Writing of a large file without the page cache.

To copy the file into the cache would cost CPU time that training needs, and the file is not read soon.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np

ALIGNMENT = 4096  # of memory, lengths and offsets: what every block device and page size in use accepts
CHUNK = 8 << 20


def write_synced(path: Path, block: bytes | bytearray | memoryview, trailer: bytes) -> None:
    """Write `block` and then `trailer` to a file; all data is on disk on return.

    Unaligned memory, and data that the file system refuses to write directly, go through the cache.
    Raises OSError; a part of the file may exist then.
    """
    view = memoryview(block)
    written = _write_direct(path, view) if np.frombuffer(view, np.uint8).ctypes.data % ALIGNMENT == 0 else 0
    with path.open("r+b" if written else "wb") as file:
        file.seek(written)
        file.write(view[written:])
        file.write(trailer)
        file.flush()
        os.fsync(file.fileno())


def _write_direct(path: Path, view: memoryview) -> int:
    """Write the whole blocks of `view` directly; return the bytes written, 0 if that is not supported."""
    aligned_size = len(view) // ALIGNMENT * ALIGNMENT
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_DIRECT, 0o666)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return 0
        raise
    written = 0
    try:
        while (
            written < aligned_size and written % ALIGNMENT == 0
        ):  # a write may be cut short anywhere: the remaining data goes through the cache
            written += os.write(descriptor, view[written : min(written + CHUNK, aligned_size)])
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
    return written
