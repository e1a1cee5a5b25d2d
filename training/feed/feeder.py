"""A feeder: a process that fetches a stream's objects, splits them into records and sends the records to its parent.

A feeder's messages contain data and the stream's position after the data. A feeder's last message reports the end of
the stream, or a problem that no retry solves. If a feeder dies, a new feeder continues from the position of the last
complete message. The new feeder leaves out bytes that the parent has already written to the FIFO.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from dyntrain.training.feed.dealing import Piece, Position, Stream
from dyntrain.training.feed.fifos import enlarge
from dyntrain.training.feed.frames import LINES, Checksum, DamagedRecord, format_of, split
from dyntrain.training.feed.opened import close_other_descriptors, die_with_parent
from dyntrain.training.feed.places import ChannelError, S3Object
from dyntrain.training.feed.stream import ObjectStream

DATA, END, PROBLEM = range(3)  # kinds of messages
HEADER = struct.Struct("<BIQQI")  # kind of message, position after its data, length of its data
MESSAGE_BYTES = 256 * 1024  # bytes of a message, unless a single record is longer
HELD_SECONDS = 60.0  # for which a finished feeder keeps its FIFO open, unless it is killed first
HEAD_BYTES = 12  # first bytes of an object, which show its format
Reader = Callable[[S3Object, int], bytes]  # reads available data from a byte on
Writer = Callable[[Sequence["bytes | memoryview"]], object]  # writes all buffers into a pipe


class Message(NamedTuple):  # of a feeder
    """A message of a feeder. `position` is the position in the stream after `data`."""

    kind: int  # DATA, END or PROBLEM
    position: Position  # after the data
    data: memoryview = memoryview(b"")  # bytes for the FIFO, or the text of a problem


class Part(NamedTuple):  # of an S3 object
    """Whole records of an object, or bytes of an object that has no records.

    The record after the part is the object's record number `record`, and begins at byte `offset` of the object.
    """

    data: memoryview  # the part's bytes
    record: int  # number of the next record in the object
    offset: int  # byte at which the next record begins


def stream_messages(
    read: Reader, stream: Stream, position: Position, skip_bytes: int, format_name: str, crc: Checksum | None
) -> Iterator[Message]:
    """Yield messages with the stream's data from `position` on, without the first `skip_bytes` bytes of the data.

    If `format_name` is "", the format of the records is detected from the objects. Raises ChannelError.
    """
    for piece_index in range(position.pieces, len(stream)):
        piece = stream[piece_index]
        if piece_index == position.pieces and (position.record or position.offset):
            piece = piece._replace(record=position.record, offset=position.offset)
        format_name, first_bytes = detected_format(read, piece, format_name)
        for part in read_parts(read, piece, first_bytes, format_name, crc):
            skipped_bytes = min(skip_bytes, len(part.data))
            skip_bytes -= skipped_bytes
            ends_object = part.offset == piece.source.size
            next_position = (
                Position(piece_index + 1) if ends_object else Position(piece_index, part.record, part.offset)
            )
            yield Message(DATA, next_position, part.data[skipped_bytes:])
    yield Message(END, Position(len(stream)))


def detected_format(read: Reader, piece: Piece, format_name: str) -> tuple[str, bytes]:
    """Return the format of the piece's records, and the bytes that were read to detect the format.

    Raises ChannelError.
    """
    if format_name or not piece.size:
        return format_name, b""
    first_bytes = _read_more(read, piece.source, 0, b"", min(HEAD_BYTES, piece.source.size))
    return format_of(first_bytes[:HEAD_BYTES], piece.source.key), b"" if piece.offset else first_bytes


def read_parts(read: Reader, piece: Piece, buffer: bytes, format_name: str, crc: Checksum | None) -> Iterator[Part]:
    """Read a piece of an object, and yield the piece in parts.

    `buffer` contains the first bytes of the piece, which were read before.

    Raises ChannelError.
    """
    source, record, offset = piece
    needed_bytes = 1
    while offset < source.size:
        buffer = _read_more(read, source, offset, buffer, min(max(needed_bytes, MESSAGE_BYTES), source.size - offset))
        ends_object = offset + len(buffer) == source.size
        try:
            records_end, record_count, needed_bytes = split(format_name, buffer, ends_object, crc)
        except DamagedRecord as error:
            intact_count = split(format_name, buffer[: error.offset], False, None).records
            raise ChannelError(
                f"{source}, record {record + intact_count}, at byte {offset + error.offset}: the record is "
                f"damaged: {error}"
            ) from error
        part_data = memoryview(buffer)[:records_end]
        if ends_object and format_name == LINES and not buffer.endswith(b"\n"):
            part_data = memoryview(
                buffer + b"\n"
            )  # otherwise the next object's first line would be joined to this line
        offset, record, buffer = offset + records_end, record + record_count, buffer[records_end:]
        yield Part(part_data, record, offset)


def _read_more(read: Reader, source: S3Object, offset: int, buffer: bytes, needed_bytes: int) -> bytes:
    """Return `buffer` (the object's bytes from `offset` on), extended by reading to at least `needed_bytes` bytes."""
    buffers, buffered_bytes = [buffer], len(buffer)
    while buffered_bytes < needed_bytes:
        buffers.append(read(source, offset + buffered_bytes))
        buffered_bytes += len(buffers[-1])
    return b"".join(buffers)


def write_all(write: Writer, sequence: Iterator[Message], channel: str) -> None:
    """Write the messages of `sequence`. If `sequence` raises ChannelError, write a last message with the error."""
    position = Position(0)
    try:
        for message in sequence:
            position = message.position
            write([HEADER.pack(message.kind, *position, len(message.data)), message.data])
    except ChannelError as error:
        sentence = f"channel {channel}: {error}".encode()
        write([HEADER.pack(PROBLEM, *position, len(sentence)), sentence])


def object_reader(s3: Any) -> Reader:
    """Return a function that reads objects from S3, and that keeps only the object open that was read last."""
    streams: dict[S3Object, ObjectStream] = {}

    def read(source: S3Object, start: int) -> bytes:
        if source not in streams:
            for old_stream in streams.values():
                old_stream.close()
            streams.clear()
            streams[source] = ObjectStream(s3, source)
        return streams[source].read_some(start)

    return read


def fork(work: Callable[[Writer], None], fifo: int = -1, group: int = 0) -> tuple[int, int]:
    """Fork a child that runs `work`, which writes into a pipe. Returns the child's pid and the pipe's read end.

    With a `group`, the child joins the process group `group`, so the child can outlive its parent until the group is
    killed. A child with a group keeps `fifo` open for up to `HELD_SECONDS` after its work. Without a group, the child
    is killed when its parent ends.
    """
    parent_pid = os.getpid()
    read_end, write_end = os.pipe()
    child_pid = os.fork()
    if child_pid:
        os.close(write_end)
        return child_pid, read_end
    exit_code = 1
    try:
        if group:
            with contextlib.suppress(OSError):
                os.setpgid(0, group)
        else:
            die_with_parent(parent_pid)
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, signal.SIG_DFL)
        close_other_descriptors(write_end, fifo)
        enlarge(write_end)

        def write(buffers: Sequence[bytes | memoryview]) -> None:
            unwritten_views = [memoryview(buffer) for buffer in buffers]
            while unwritten_views:
                written_bytes = os.writev(write_end, unwritten_views)
                while unwritten_views and written_bytes >= len(unwritten_views[0]):
                    written_bytes -= len(unwritten_views.pop(0))
                if unwritten_views:
                    unwritten_views[0] = unwritten_views[0][written_bytes:]

        work(write)
        exit_code = 0
        if group:
            time.sleep(HELD_SECONDS)
    except BrokenPipeError:
        exit_code = 0  # the parent closed the pipe, or has ended
        if group:
            time.sleep(HELD_SECONDS)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(exit_code)  # in any case, the parent's clean-up code must not run in the child
