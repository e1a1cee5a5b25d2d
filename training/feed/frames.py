"""Finds the records in an object's bytes, and checks their frames. Pure.

The formats are RecordIO of dmlc-core (https://github.com/dmlc/dmlc-core/blob/main/include/dmlc/recordio.h), and
TFRecord of TensorFlow (https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/lib/io/record_writer.h).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from dyntrain.training.feed.crc import by_table, masked
from dyntrain.training.feed.places import ChannelError

RECORDIO, TFRECORD, LINES, WHOLE_OBJECTS = FORMATS = ("recordio", "tfrecord", "lines", "none")
BY_NAME = {
    ".rec": RECORDIO,
    ".tfrecord": TFRECORD,
    ".tfrecords": TFRECORD,
    **dict.fromkeys((".csv", ".json", ".jsonl", ".libsvm", ".tsv", ".txt"), LINES),
}
MAGIC = 0xCED7230A
HEADER = struct.Struct("<II")
WHOLE, FIRST, MIDDLE, LAST = range(4)
_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_TF_HEADER, _TF_FRAME = 12, 16  # bytes
NO_BOUND = 1 << 62  # records
Check = Callable[[bytes], int]


class Damaged(ValueError):
    """A damaged record; `at` is its first byte in the buffer."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at


class Split(NamedTuple):
    """A buffer has `records` whole records, up to byte `end`. The next record needs at least `wanted` bytes."""

    end: int
    records: int
    wanted: int = 0


def format_of(head: bytes, name: str) -> str:
    """Detect an object's format from its first twelve bytes, else from its name."""
    if len(head) >= HEADER.size and HEADER.unpack_from(head)[0] == MAGIC:
        return RECORDIO
    if len(head) >= _TF_HEADER and _sound(head, 0, 8):
        return TFRECORD
    for ending, kind in BY_NAME.items():
        if name.lower().endswith(ending):
            return kind
    return WHOLE_OBJECTS


def checked_format(name: str) -> str:
    """Return the format's name in lower case. Raises ChannelError for an unknown format."""
    if name.lower() not in FORMATS:
        raise ChannelError(f"{name!r} is no format of records: {', '.join(FORMATS)}")
    return name.lower()


def split(kind: str, buffer: bytes, last: bool, crc: Check | None) -> Split:
    """Find the whole records at the start of the buffer. `last` says that the object ends with the buffer.

    With `crc` None, the contents of TFRecords are not checked. Raises Damaged.
    """
    if kind == TFRECORD:
        records = _tf_records(buffer, crc)
    elif kind == RECORDIO:
        records = _record_io(buffer)
    elif kind == LINES:
        end = len(buffer) if last else buffer.rfind(b"\n") + 1
        unended = last and bool(buffer) and not buffer.endswith(b"\n")
        return Split(end, buffer.count(b"\n", 0, end) + unended, len(buffer) - end + 1)
    else:
        return Split(len(buffer), int(last))
    if last and records.end < len(buffer):
        raise Damaged(records.end, "the object ends within the record")
    return records


def end_of(kind: str, buffer: bytes, records: int) -> int:
    """The offset after the buffer's first `records` records, which must be complete."""
    if kind == TFRECORD:
        return _tf_records(buffer, None, records).end
    if kind == RECORDIO:
        return _record_io(buffer, records).end
    end = 0
    for _ in range(records):
        end = buffer.index(b"\n", end) + 1
    return end


def _sound(buffer: bytes, start: int, length: int, crc: Check = by_table) -> bool:
    expected: int = _CRC.unpack_from(buffer, start + length)[0]
    return masked(crc(buffer[start : start + length])) == expected


def _tf_records(buffer: bytes, crc: Check | None, limit: int = NO_BOUND) -> Split:
    at = count = 0
    size = len(buffer)
    while size - at >= _TF_HEADER and count < limit:
        if not _sound(buffer, at, 8, crc or by_table):
            raise Damaged(at, "the checksum of the record's length is wrong")
        length = _LENGTH.unpack_from(buffer, at)[0]
        if size - at < length + _TF_FRAME:
            return Split(at, count, length + _TF_FRAME)
        if crc is not None and not _sound(buffer, at + _TF_HEADER, length, crc):
            raise Damaged(at, "the checksum of the record is wrong")
        at += length + _TF_FRAME
        count += 1
    return Split(at, count, _TF_FRAME)


def _record_io(buffer: bytes, limit: int = NO_BOUND) -> Split:
    end = at = count = 0
    in_record = False
    while len(buffer) - at >= HEADER.size and count < limit:
        magic, word = HEADER.unpack_from(buffer, at)
        kind, length = word >> 29, word & (1 << 29) - 1
        if magic != MAGIC or kind > LAST or (kind in (MIDDLE, LAST)) != in_record:
            raise Damaged(end, "no record begins here")
        following = at + HEADER.size + (length + 3) // 4 * 4
        if following > len(buffer):
            return Split(end, count, following - end)
        at, in_record = following, kind in (FIRST, MIDDLE)
        if not in_record:
            end = at
            count += 1
    return Split(end, count, at - end + HEADER.size)
