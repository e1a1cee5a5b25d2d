"""The frames of RecordIO's records, which `feed.frames` describes.

A record that contains the magic number is written in parts, without that number between two parts.
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
    offset = 0
    parts: list[bytes] = []
    while True:
        if len(raw) < offset + HEADER.size:
            raise ValueError("the data ends within a record")
        magic, word = HEADER.unpack_from(raw, offset)
        kind, length = word >> 29, word & (1 << 29) - 1
        if magic != MAGIC or len(raw) < offset + 8 + length or (kind in (WHOLE, FIRST)) != (not parts):
            raise ValueError("no record begins here; does the index belong to another object?")
        parts.append(raw[offset + 8 : offset + 8 + length])
        offset += 8 + (length + 3) // 4 * 4
        if kind in (WHOLE, LAST):
            return _MAGIC_BYTES.join(parts)


def starts_in(file: BinaryIO) -> Iterator[int]:
    """Yield the offset of each record, from the headers alone. Raises ValueError if a record is damaged or cut off."""
    size, offset, in_record = os.fstat(file.fileno()).st_size, 0, False
    while offset < size:
        file.seek(offset)
        header = file.read(HEADER.size)
        magic, word = HEADER.unpack(header) if len(header) == HEADER.size else (0, 0)
        kind, length = word >> 29, word & (1 << 29) - 1
        if magic != MAGIC or (kind in (MIDDLE, LAST)) != in_record:
            raise ValueError(f"at byte {offset} no record begins")
        if offset + HEADER.size + length > size:
            raise ValueError(f"the file ends within the record at byte {offset}")
        if not in_record:
            yield offset
        in_record = kind in (FIRST, MIDDLE)
        offset += HEADER.size + (length + 3) // 4 * 4
    if in_record:
        raise ValueError("the last record is incomplete")


def index_of(data: Path) -> list[str]:
    """Return the lines of the index that MXNet's writer would write, with record numbers as keys.

    Raises OSError if the file cannot be read, and ValueError if the file is damaged.
    """
    with data.open("rb") as file:
        return [f"{number}\t{start}\n" for number, start in enumerate(starts_in(file))]
