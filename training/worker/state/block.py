"""A block of packed state in memory, its header and its checksum: what a change of membership has to copy, send and
compare while nobody trains.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xxhash

CHECKSUM_BYTES = 16
LENGTH = 8  # bytes, of the header's length


class StateError(RuntimeError):
    """The state is damaged, or belongs to another model."""


def header_of(block: bytes | bytearray | memoryview) -> tuple[dict[str, Any], int]:
    """The header, and where the arrays begin. Raises StateError."""
    size = int.from_bytes(block[:LENGTH], "big")
    if not 0 < size <= len(block) - LENGTH:
        raise StateError("the state has no header")
    try:
        return json.loads(bytes(block[LENGTH : LENGTH + size])), LENGTH + size
    except ValueError as error:
        raise StateError(f"the state's header is damaged: {error}") from error


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
