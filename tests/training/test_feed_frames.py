"""How records are told apart in what S3 sends, in pieces of any size.

What would break for a user: half a record, or a damaged one, that a reader takes for data.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from dyntrain.training.feed.crc import crc32c_by_table, library_crc, masked_crc
from dyntrain.training.feed.frames import (
    LINES,
    MAGIC,
    RECORDIO,
    TFRECORD,
    WHOLE_OBJECTS,
    DamagedRecord,
    checked_format,
    format_of,
    split,
)
from dyntrain.training.feed.places import ChannelError
from feed_bed import record_io, tf_record
from hypothesis import given
from hypothesis import strategies as st

WRITERS: dict[str, Callable[[bytes], bytes]] = {
    RECORDIO: record_io,
    TFRECORD: tf_record,
    LINES: lambda data: data.replace(b"\n", b"") + b"\n",
}


def test_the_checksums_are_castagnolis() -> None:
    """The vectors of RFC 3720, B.4; and TFRecord's mask of one of them, from TensorFlow's own test."""
    vectors = {b"\0" * 32: 0x8A9136AA, b"\xff" * 32: 0x62A8AB43, bytes(range(32)): 0x46DD794E, b"123456789": 0xE3069283}
    for data, expected in vectors.items():
        assert crc32c_by_table(data) == expected
        crc = library_crc()
        assert crc is not None, "the development environment has a library"
        assert crc(data) == expected
    assert masked_crc(0) == 0xA282EAD8


@given(st.sampled_from(sorted(WRITERS)), st.lists(st.binary(max_size=40), max_size=6), st.integers(1, 50))
def test_records_come_whole_whatever_the_pieces_are(kind: str, contents: list[bytes], step: int) -> None:
    frames = [WRITERS[kind](data) for data in contents]
    stream, buffer, given_out, count, at = b"".join(frames), b"", b"", 0, 0
    ends = {sum(map(len, frames[:number])) for number in range(len(frames) + 1)}
    while at < len(stream):
        buffer += stream[at : at + step]
        at += step
        part = split(kind, buffer, at >= len(stream), crc32c_by_table)
        given_out += buffer[: part.end]
        count += part.records
        buffer = buffer[part.end :]
        assert len(given_out) in ends
        assert at >= len(stream) or part.wanted > len(buffer), "else it would be asked again in vain"
    assert (given_out, count, buffer) == (stream, len(frames), b"")


@given(st.binary(min_size=1, max_size=40), st.integers(0, 10_000), st.integers(1, 255))
def test_a_damaged_tfrecord_is_told_where_it_begins(content: bytes, where: int, change: int) -> None:
    first = tf_record(b"sound")
    frame = bytearray(tf_record(content))
    frame[where % len(frame)] ^= change
    with pytest.raises(DamagedRecord) as caught:
        split(TFRECORD, first + bytes(frame), True, crc32c_by_table)
    assert caught.value.offset == len(first)


def test_without_a_library_lengths_are_still_checked() -> None:
    frame = bytearray(tf_record(b"content"))
    frame[14] ^= 1
    assert split(TFRECORD, bytes(frame), True, None).records == 1
    frame[0] ^= 1
    with pytest.raises(DamagedRecord, match="length"):
        split(TFRECORD, bytes(frame), True, None)


@pytest.mark.parametrize("kind", [RECORDIO, TFRECORD])
def test_an_object_that_ends_within_a_record_is_told(kind: str) -> None:
    first, second = WRITERS[kind](b"12345"), WRITERS[kind](b"67890")
    for cut in range(1, len(second)):
        with pytest.raises(DamagedRecord) as caught:
            split(kind, first + second[:cut], True, crc32c_by_table)
        assert caught.value.offset == len(first)


def test_recordio_in_parts_is_one_record() -> None:
    """As its writers leave one that has the magic number in it."""
    magic = struct.pack("<I", MAGIC)
    record = record_io(b"abcd" + magic + b"efgh" + magic + b"x")
    assert record.count(magic) == 3
    assert split(RECORDIO, record, True, None)[:2] == (len(record), 1)
    for cut in range(1, len(record)):
        assert split(RECORDIO, record[:cut], False, None)[:2] == (0, 0)
    for start in (12, 24):
        with pytest.raises(DamagedRecord):
            split(RECORDIO, record[start:], True, None)


def test_the_last_line_may_lack_its_end() -> None:
    assert split(LINES, b"a\nb", False, None)[:2] == (2, 1)
    assert split(LINES, b"a\nb", True, None)[:2] == (3, 2)
    assert split(LINES, b"", True, None)[:2] == (0, 0)


def test_the_format_is_seen_or_told_by_the_name() -> None:
    assert format_of(tf_record(b"x")[:12], "train-00000-of-00004") == TFRECORD
    assert format_of(record_io(b"x")[:12], "x.csv") == RECORDIO
    assert format_of(b"1,2,3\n", "a.CSV") == LINES
    assert format_of(b"\x89PNG", "a.png") == WHOLE_OBJECTS
    assert format_of(b"", "a.tfrecords") == TFRECORD
    assert checked_format("TFRecord") == TFRECORD
    with pytest.raises(ChannelError, match="'parquet' is no format of records: recordio, tfrecord, lines, none"):
        checked_format("parquet")
