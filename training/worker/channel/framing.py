"""The frames of RecordIO's records, which `feed.frames` describes.

A record that contains the magic number is written in parts, split where the number is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dyntrain.training.feed.frames import FIRST, HEADER, LAST, MAGIC, MIDDLE, WHOLE

_MAGIC_BYTES = MAGIC.to_bytes(4, "little")


def payload(raw: bytes) -> bytes:
    """Return the payload of one record with its frame. Raises ValueError if `raw` is not a whole record."""
    at = 0
    parts: list[bytes] = []
    while True:
        if len(raw) < at + HEADER.size:
            raise ValueError("it ends within a record")
        magic, word = HEADER.unpack_from(raw, at)
        kind, length = word >> 29, word & (1 << 29) - 1
        if magic != MAGIC or len(raw) < at + 8 + length or (kind in (WHOLE, FIRST)) != (not parts):
            raise ValueError("there is no record; is the index of another object?")
        parts.append(raw[at + 8 : at + 8 + length])
        at += 8 + (length + 3) // 4 * 4
        if kind in (WHOLE, LAST):
            return _MAGIC_BYTES.join(parts)


def starts_in(file: BinaryIO) -> Iterator[int]:
    """Yield where the file's records begin, by their headers alone. Raises ValueError if a record is bad or cut off."""
    size, at, within = os.fstat(file.fileno()).st_size, 0, False
    while at < size:
        file.seek(at)
        header = file.read(HEADER.size)
        magic, word = HEADER.unpack(header) if len(header) == HEADER.size else (0, 0)
        kind, length = word >> 29, word & (1 << 29) - 1
        if magic != MAGIC or (kind in (MIDDLE, LAST)) != within:
            raise ValueError(f"at byte {at} there is no record")
        if at + HEADER.size + length > size:
            raise ValueError(f"it ends within the record at byte {at}")
        if not within:
            yield at
        within = kind in (FIRST, MIDDLE)
        at += HEADER.size + (length + 3) // 4 * 4
    if within:
        raise ValueError("its last record is not whole")


def index_of(data: Path) -> list[str]:
    """Return the lines of the index that MXNet's writer would write, with record numbers as keys.

    Raises OSError if the file cannot be read, and ValueError if it is damaged.
    """
    with data.open("rb") as file:
        return [f"{number}\t{start}\n" for number, start in enumerate(starts_in(file))]
