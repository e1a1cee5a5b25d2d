"""Writes a large file without the kernel's page cache.

Copying the file into the page cache would cost CPU time that training needs, and the file is not read soon.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np

ALIGNMENT = 4096  # of memory, lengths and offsets: what every block device and page size in use accepts
CHUNK_BYTES = 8 << 20  # written at once


def write_synced(path: Path, block: bytes | bytearray | memoryview, trailer: bytes) -> None:
    """Write `block` and then `trailer` to a file. When the function returns, all data is on disk.

    Data in unaligned memory, and data that the file system refuses to write directly, is written through the page
    cache. Raises OSError, and may leave an incomplete file.
    """
    block_view = memoryview(block)
    bytes_written = (
        _write_direct(path, block_view) if np.frombuffer(block_view, np.uint8).ctypes.data % ALIGNMENT == 0 else 0
    )
    with path.open("r+b" if bytes_written else "wb") as file:
        file.seek(bytes_written)
        file.write(block_view[bytes_written:])
        file.write(trailer)
        file.flush()
        os.fsync(file.fileno())


def _write_direct(path: Path, block_view: memoryview) -> int:
    """Write as many whole disk blocks of `block_view` as possible without the page cache.

    Returns the number of written bytes, which is 0 if the file system does not support direct writing.
    """
    aligned_size = len(block_view) // ALIGNMENT * ALIGNMENT
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_DIRECT, 0o666)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return 0
        raise
    bytes_written = 0
    try:
        while (
            bytes_written < aligned_size and bytes_written % ALIGNMENT == 0
        ):  # a write may be cut short anywhere: the remaining data goes through the cache
            bytes_written += os.write(
                descriptor, block_view[bytes_written : min(bytes_written + CHUNK_BYTES, aligned_size)]
            )
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
    return bytes_written
