"""A block of packed state in memory, and its checksum: what a change of membership has to copy, send and compare while
nobody trains.
"""

from __future__ import annotations

import numpy as np
import xxhash

CHECKSUM_BYTES = 16


def allocate(size: int) -> memoryview:
    """Writable, contents undefined. numpy asks for huge pages: to fill it for the first time takes a tenth of what a
    bytearray takes.
    """
    return np.empty(size, np.uint8).data


def checksum(*parts: bytes | bytearray | memoryview) -> bytes:
    """Sixteen bytes (XXH3-128) over the parts one after another. Tells damage and difference, not forgery."""
    hasher = xxhash.xxh3_128()
    for part in parts:
        hasher.update(part)
    return hasher.digest()
