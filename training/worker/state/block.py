"""The packed state, which a membership change copies, sends and compares: header, checksum and memory."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xxhash

CHECKSUM_BYTES = 16
LENGTH = 8  # bytes of the field with the header's length


class StateError(RuntimeError):
    """The state is damaged, or belongs to another model."""


def header_of(block: bytes | bytearray | memoryview) -> tuple[dict[str, Any], int]:
    """Return the header and the offset of the arrays. Raises StateError if the header is missing or damaged."""
    size = int.from_bytes(block[:LENGTH], "big")
    if not 0 < size <= len(block) - LENGTH:
        raise StateError("the state has no header")
    try:
        return json.loads(bytes(block[LENGTH : LENGTH + size])), LENGTH + size
    except ValueError as error:
        raise StateError(f"the state's header is damaged: {error}") from error


def allocate(size: int) -> memoryview:
    """Allocate writable memory with undefined contents.

    NumPy requests huge pages, so the first filling takes a tenth of a bytearray's time.
    """
    return np.empty(size, np.uint8).data


def checksum(*parts: bytes | bytearray | memoryview) -> bytes:
    """Return the XXH3-128 (16 bytes) of the concatenated parts. The checksum detects damage, not forgery."""
    hasher = xxhash.xxh3_128()
    for part in parts:
        hasher.update(part)
    return hasher.digest()
