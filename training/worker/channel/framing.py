"""Reads records in the RecordIO format, which `dyntrain.training.feed.frames` describes.

A record that contains RecordIO's magic number is written in several parts, without the magic number between the parts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dyntrain.training.feed.frames import FIRST, HEADER, LAST, MAGIC, MIDDLE, WHOLE

_MAGIC_BYTES = MAGIC.to_bytes(4, "little")


def payload(raw: bytes) -> bytes:
    """Return the payload of one record in the RecordIO format. Raises ValueError if `raw` is not a whole record."""
    offset = 0
    payload_parts: list[bytes] = []
    while True:
        if len(raw) < offset + HEADER.size:
            raise ValueError("the data ends within a record")
        magic, length_word = HEADER.unpack_from(raw, offset)
        part_kind, length = length_word >> 29, length_word & (1 << 29) - 1
        if magic != MAGIC or len(raw) < offset + 8 + length or (part_kind in (WHOLE, FIRST)) != (not payload_parts):
            raise ValueError("no record begins at the index's offset: does the index belong to another object?")
        payload_parts.append(raw[offset + 8 : offset + 8 + length])
        offset += 8 + (length + 3) // 4 * 4
        if part_kind in (WHOLE, LAST):
            return _MAGIC_BYTES.join(payload_parts)


def record_starts_in_file(file: BinaryIO) -> Iterator[int]:
    """Yield the offset of each record in a RecordIO file, found by the records' headers.

    Raises ValueError if a record is damaged or cut off.
    """
    file_size, offset, in_record = os.fstat(file.fileno()).st_size, 0, False
    while offset < file_size:
        file.seek(offset)
        header = file.read(HEADER.size)
        magic, length_word = HEADER.unpack(header) if len(header) == HEADER.size else (0, 0)
        part_kind, length = length_word >> 29, length_word & (1 << 29) - 1
        if magic != MAGIC or (part_kind in (MIDDLE, LAST)) != in_record:
            raise ValueError(f"at byte {offset} no record begins")
        if offset + HEADER.size + length > file_size:
            raise ValueError(f"the file ends within the record at byte {offset}")
        if not in_record:
            yield offset
        in_record = part_kind in (FIRST, MIDDLE)
        offset += HEADER.size + (length + 3) // 4 * 4
    if in_record:
        raise ValueError("the last record is incomplete")


def index_of(data: Path) -> list[str]:
    """Return the lines of the index that MXNet's im2rec would write for a RecordIO file.

    The keys in the index are record numbers.

    Raises OSError if the file cannot be read, and ValueError if the file is damaged.
    """
    with data.open("rb") as data_file:
        return [
            f"{record_number}\t{record_start}\n"
            for record_number, record_start in enumerate(record_starts_in_file(data_file))
        ]
