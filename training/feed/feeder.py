"""A feeder: a process that fetches a stream's objects, splits them into records and sends them to its parent.

A feeder sends messages: data up to a position, and at last the end, or a problem that no retry solves. After its death,
a new feeder continues from the last position, without the later bytes that the parent has already written.
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
from dyntrain.training.feed.frames import LINES, Check, Damaged, format_of, split
from dyntrain.training.feed.opened import die_with, keep_only
from dyntrain.training.feed.places import ChannelError, S3Object
from dyntrain.training.feed.stream import ObjectStream

DATA, END, PROBLEM = range(3)
HEADER = struct.Struct("<BIQQI")  # kind of message, position after its data, length of its data
MOST_AT_ONCE = 256 * 1024  # bytes of a message, unless a single record is longer
HELD_SECONDS = 60.0  # for which a finished feeder keeps its FIFO open, unless it is killed first
HEAD_BYTES = 12  # first bytes of an object, which show its format
Read = Callable[[S3Object, int], bytes]  # reads available data from a byte on
Write = Callable[[Sequence["bytes | memoryview"]], object]


class Message(NamedTuple):
    """A message of a feeder. `position` is the stream's position after `data`."""

    kind: int
    position: Position
    data: memoryview = memoryview(b"")


class Part(NamedTuple):
    """Whole records of an object, or bytes of an object without records. The next record is `record`, at byte `at`."""

    data: memoryview
    record: int
    at: int


def messages(
    read: Read, stream: Stream, position: Position, skip: int, kind: str, crc: Check | None
) -> Iterator[Message]:
    """The messages from `position` on, without the first `skip` bytes.

    With `kind` "", the format is detected from the objects. Raises ChannelError.
    """
    for index in range(position.pieces, len(stream)):
        piece = stream[index]
        if index == position.pieces and (position.record or position.at):
            piece = piece._replace(record=position.record, at=position.at)
        kind, head = detected_format(read, piece, kind)
        for part in parts(read, piece, head, kind, crc):
            skipped = min(skip, len(part.data))
            skip -= skipped
            is_last = part.at == piece.source.size
            position_after = Position(index + 1) if is_last else Position(index, part.record, part.at)
            yield Message(DATA, position_after, part.data[skipped:])
    yield Message(END, Position(len(stream)))


def detected_format(read: Read, piece: Piece, kind: str) -> tuple[str, bytes]:
    """Return the format of the piece's records, and the bytes that were read to detect it. Raises ChannelError."""
    if kind or not piece.size:
        return kind, b""
    head = _extended(read, piece.source, 0, b"", min(HEAD_BYTES, piece.source.size))
    return format_of(head[:HEAD_BYTES], piece.source.key), b"" if piece.at else head


def parts(read: Read, piece: Piece, buffer: bytes, kind: str, crc: Check | None) -> Iterator[Part]:
    """Split a piece into parts. `buffer` holds the piece's bytes that were already read. Raises ChannelError."""
    source, record, at = piece
    needed = 1
    while at < source.size:
        buffer = _extended(read, source, at, buffer, min(max(needed, MOST_AT_ONCE), source.size - at))
        last = at + len(buffer) == source.size
        try:
            end, records, needed = split(kind, buffer, last, crc)
        except Damaged as error:
            sound = split(kind, buffer[: error.at], False, None).records
            raise ChannelError(
                f"{source}, record {record + sound}, at byte {at + error.at}: the record is damaged: {error}"
            ) from error
        part_data = memoryview(buffer)[:end]
        if last and kind == LINES and not buffer.endswith(b"\n"):
            part_data = memoryview(
                buffer + b"\n"
            )  # otherwise the next object's first line would be joined to this line
        at, record, buffer = at + end, record + records, buffer[end:]
        yield Part(part_data, record, at)


def _extended(read: Read, source: S3Object, at: int, buffer: bytes, needed: int) -> bytes:
    """Extend the buffer with the bytes that follow, to at least `needed` bytes."""
    parts, size = [buffer], len(buffer)
    while size < needed:
        parts.append(read(source, at + size))
        size += len(parts[-1])
    return b"".join(parts)


def write_all(write: Write, sequence: Iterator[Message], channel: str) -> None:
    """Write the messages of `sequence`. If `sequence` raises ChannelError, write a last message with the problem."""
    position = Position(0)
    try:
        for message in sequence:
            position = message.position
            write([HEADER.pack(message.kind, *position, len(message.data)), message.data])
    except ChannelError as error:
        sentence = f"channel {channel}: {error}".encode()
        write([HEADER.pack(PROBLEM, *position, len(sentence)), sentence])


def objects_by(s3: Any) -> Read:
    """Return a function that reads from S3, and keeps only the last object open."""
    streams: dict[S3Object, ObjectStream] = {}

    def read(source: S3Object, start: int) -> bytes:
        if source not in streams:
            for finished in streams.values():
                finished.close()
            streams.clear()
            streams[source] = ObjectStream(s3, source)
        return streams[source].read_some(start)

    return read


def fork(work: Callable[[Write], None], fifo: int = -1, group: int = 0) -> tuple[int, int]:
    """Fork a child that runs `work`, which writes into a pipe. Returns the child's pid and the pipe's read end.

    With a `group`, the child joins that process group, so that it can outlive its parent until the group is killed, and
    keeps `fifo` open for up to `HELD_SECONDS` after its work. Without a group, the child is killed when its parent
    ends.
    """
    parent = os.getpid()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child:
        os.close(write_end)
        return child, read_end
    code = 1
    try:
        if group:
            with contextlib.suppress(OSError):
                os.setpgid(0, group)
        else:
            die_with(parent)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        keep_only(write_end, fifo)
        enlarge(write_end)

        def write(contents: Sequence[bytes | memoryview]) -> None:
            unwritten = [memoryview(content) for content in contents]
            while unwritten:
                written = os.writev(write_end, unwritten)
                while unwritten and written >= len(unwritten[0]):
                    written -= len(unwritten.pop(0))
                if unwritten:
                    unwritten[0] = unwritten[0][written:]

        work(write)
        code = 0
        if group:
            time.sleep(HELD_SECONDS)
    except BrokenPipeError:
        code = 0  # the parent closed the pipe, or has ended
        if group:
            time.sleep(HELD_SECONDS)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)  # in any case, the parent's clean-up code must not run in the child
