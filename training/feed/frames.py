"""Finds the records in an object's bytes, and checks the headers and checksums around the records. Pure.

The formats are RecordIO of dmlc-core (https://github.com/dmlc/dmlc-core/blob/main/include/dmlc/recordio.h), and
TFRecord of TensorFlow (https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/lib/io/record_writer.h).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from dyntrain.training.feed.crc import crc32c_by_table, masked_crc
from dyntrain.training.feed.places import ChannelError

RECORDIO, TFRECORD, LINES, WHOLE_OBJECTS = FORMATS = ("recordio", "tfrecord", "lines", "none")
FORMAT_BY_SUFFIX = {
    ".rec": RECORDIO,
    ".tfrecord": TFRECORD,
    ".tfrecords": TFRECORD,
    **dict.fromkeys((".csv", ".json", ".jsonl", ".libsvm", ".tsv", ".txt"), LINES),
}
MAGIC = 0xCED7230A  # at the start of each frame of RecordIO
HEADER = struct.Struct("<II")  # of a RecordIO frame: MAGIC, then kind and length
WHOLE, FIRST, MIDDLE, LAST = range(4)  # kinds of RecordIO frames: a whole record, or a part of a record
_LENGTH = struct.Struct("<Q")  # of a TFRecord's length field
_CRC = struct.Struct("<I")  # of a TFRecord's checksum field
_TF_HEADER_BYTES, _TF_FRAME_BYTES = 12, 16  # of a TFRecord without its data
NO_LIMIT = 1 << 62  # more records than any buffer contains
Checksum = Callable[[bytes], int]  # computes a checksum


class DamagedRecord(ValueError):
    """A damaged record, which begins at byte `offset` of the buffer."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


class SplitResult(NamedTuple):
    """The result of `split`: the buffer contains `records` whole records, which end at byte `end`.

    The next record needs at least `wanted` bytes in the buffer.
    """

    end: int  # byte after the last whole record
    records: int  # number of whole records
    wanted: int = 0  # bytes that the next record needs at least


def format_of(first_bytes: bytes, name: str) -> str:
    """Detect the format of an object's records by the object's first twelve bytes, or else by the object's name."""
    if len(first_bytes) >= HEADER.size and HEADER.unpack_from(first_bytes)[0] == MAGIC:
        return RECORDIO
    if len(first_bytes) >= _TF_HEADER_BYTES and _checksum_matches(first_bytes, 0, 8):
        return TFRECORD
    for suffix, format_name in FORMAT_BY_SUFFIX.items():
        if name.lower().endswith(suffix):
            return format_name
    return WHOLE_OBJECTS


def checked_format(format_name: str) -> str:
    """Return the format's name in lower case. Raises ChannelError for an unknown format."""
    if format_name.lower() not in FORMATS:
        raise ChannelError(f"{format_name!r} is no format of records: {', '.join(FORMATS)}")
    return format_name.lower()


def split(format_name: str, buffer: bytes, ends_object: bool, crc: Checksum | None) -> SplitResult:
    """Find the whole records at the start of the buffer.

    `ends_object` says whether the object ends where the buffer ends.

    If `crc` is None, the contents of TFRecords are not checked. Raises DamagedRecord.
    """
    if format_name == TFRECORD:
        split_result = _split_tfrecords(buffer, crc)
    elif format_name == RECORDIO:
        split_result = _split_recordio(buffer)
    elif format_name == LINES:
        lines_end = len(buffer) if ends_object else buffer.rfind(b"\n") + 1
        has_unended_line = ends_object and bool(buffer) and not buffer.endswith(b"\n")
        return SplitResult(lines_end, buffer.count(b"\n", 0, lines_end) + has_unended_line, len(buffer) - lines_end + 1)
    else:
        return SplitResult(len(buffer), int(ends_object))
    if ends_object and split_result.end < len(buffer):
        raise DamagedRecord(split_result.end, "the object ends within the record")
    return split_result


def end_of(format_name: str, buffer: bytes, records: int) -> int:  # of so many records
    """Return the offset after the first `records` records in the buffer, which must be complete."""
    if format_name == TFRECORD:
        return _split_tfrecords(buffer, None, records).end
    if format_name == RECORDIO:
        return _split_recordio(buffer, records).end
    lines_end = 0
    for _ in range(records):
        lines_end = buffer.index(b"\n", lines_end) + 1
    return lines_end


def _checksum_matches(buffer: bytes, start: int, length: int, crc: Checksum = crc32c_by_table) -> bool:
    expected_crc: int = _CRC.unpack_from(buffer, start + length)[0]
    return masked_crc(crc(buffer[start : start + length])) == expected_crc


def _split_tfrecords(buffer: bytes, crc: Checksum | None, limit: int = NO_LIMIT) -> SplitResult:
    offset = record_count = 0
    size = len(buffer)
    while size - offset >= _TF_HEADER_BYTES and record_count < limit:
        if not _checksum_matches(buffer, offset, 8, crc or crc32c_by_table):
            raise DamagedRecord(offset, "the checksum of the record's length is wrong")
        length = _LENGTH.unpack_from(buffer, offset)[0]
        if size - offset < length + _TF_FRAME_BYTES:
            return SplitResult(offset, record_count, length + _TF_FRAME_BYTES)
        if crc is not None and not _checksum_matches(buffer, offset + _TF_HEADER_BYTES, length, crc):
            raise DamagedRecord(offset, "the checksum of the record is wrong")
        offset += length + _TF_FRAME_BYTES
        record_count += 1
    return SplitResult(offset, record_count, _TF_FRAME_BYTES)


def _split_recordio(buffer: bytes, limit: int = NO_LIMIT) -> SplitResult:
    records_end = offset = record_count = 0
    in_record = False
    while len(buffer) - offset >= HEADER.size and record_count < limit:
        magic, length_word = HEADER.unpack_from(buffer, offset)
        part_kind, length = length_word >> 29, length_word & (1 << 29) - 1
        if magic != MAGIC or part_kind > LAST or (part_kind in (MIDDLE, LAST)) != in_record:
            raise DamagedRecord(records_end, "no record begins here")
        next_offset = offset + HEADER.size + (length + 3) // 4 * 4
        if next_offset > len(buffer):
            return SplitResult(records_end, record_count, next_offset - records_end)
        offset, in_record = next_offset, part_kind in (FIRST, MIDDLE)
        if not in_record:
            records_end = offset
            record_count += 1
    return SplitResult(records_end, record_count, offset - records_end + HEADER.size)
