"""Reads the header of a packed state, computes checksums and allocates memory for a state."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xxhash

CHECKSUM_BYTES = 16  # bytes of an XXH3-128
HEADER_LENGTH_BYTES = 8  # bytes of the field with the header's length


class StateError(RuntimeError):
    """A packed training state is damaged, or belongs to another model."""


def header_of(block: bytes | bytearray | memoryview) -> tuple[dict[str, Any], int]:
    """Return a packed state's header, and the offset at which the state's arrays begin.

    Raises StateError if the header is missing or damaged.
    """
    header_length = int.from_bytes(block[:HEADER_LENGTH_BYTES], "big")
    if not 0 < header_length <= len(block) - HEADER_LENGTH_BYTES:
        raise StateError("the state has no header")
    try:
        return json.loads(
            bytes(block[HEADER_LENGTH_BYTES : HEADER_LENGTH_BYTES + header_length])
        ), HEADER_LENGTH_BYTES + header_length
    except ValueError as error:
        raise StateError(f"the state's header is damaged: {error}") from error


def allocate(size: int) -> memoryview:
    """Allocate writable memory with undefined contents.

    The memory is a NumPy array, as NumPy requests huge pages: the first write to the array takes a tenth of the time
    of the first write to a bytearray.
    """
    return np.empty(size, np.uint8).data


def checksum(*parts: bytes | bytearray | memoryview) -> bytes:
    """Return the XXH3-128 checksum (16 bytes) of the concatenated parts.

    The checksum detects damage, but not forgery.
    """
    hasher = xxhash.xxh3_128()
    for block_part in parts:
        hasher.update(block_part)
    return hasher.digest()
