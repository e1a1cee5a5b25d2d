"""How RecordIO frames its records.

The format is dmlc-core's (https://github.com/dmlc/dmlc-core/blob/main/include/dmlc/recordio.h): a magic number, a
length of 29 bits below 3 bits that say which part of a record follows, the bytes, and zeros up to a multiple of four.
A record that contains the magic number is written in parts, split there.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dyntrain.training.coordinator.whole_file import write_whole

MAGIC = 0xCED7230A
HEADER = struct.Struct("<II")
_MAGIC_BYTES = struct.pack("<I", MAGIC)
WHOLE, FIRST, MIDDLE, LAST = range(4)


def payload(raw: bytes) -> bytes:
    """Of one record with its frame. Raises ValueError."""
    at = 0
    parts: list[bytes] = []
    while True:
        if len(raw) < at + HEADER.size:
            raise ValueError("it ends within a record")
        magic, told = HEADER.unpack_from(raw, at)
        kind, length = told >> 29, told & (1 << 29) - 1
        if magic != MAGIC or len(raw) < at + 8 + length or (kind in (WHOLE, FIRST)) != (not parts):
            raise ValueError("there is no record; is the index of another object?")
        parts.append(raw[at + 8 : at + 8 + length])
        at += 8 + (length + 3) // 4 * 4
        if kind in (WHOLE, LAST):
            return _MAGIC_BYTES.join(parts)


def starts_in(file: BinaryIO) -> Iterator[int]:
    """Where the records of a file begin, by their headers alone. Raises ValueError, with the byte, where none does."""
    size, at, within = os.fstat(file.fileno()).st_size, 0, False
    while at < size:
        file.seek(at)
        header = file.read(HEADER.size)
        magic, told = HEADER.unpack(header) if len(header) == HEADER.size else (0, 0)
        kind, length = told >> 29, told & (1 << 29) - 1
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


def write_index(data: Path, index: Path) -> int:
    """Writes what MXNet's writer keeps beside its records, with their numbers for keys, and returns how many there are.
    Raises OSError and ValueError, and has written nothing then.
    """
    with data.open("rb") as file:
        lines = [f"{number}\t{start}\n" for number, start in enumerate(starts_in(file))]
    write_whole(index, "".join(lines).encode())
    return len(lines)
