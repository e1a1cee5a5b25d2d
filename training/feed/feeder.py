"""A feeder: a process that fetches a stream's objects, splits them into records and hands them to its parent.

It says a sequence of messages: data up to a position, then the end, or a problem that no waiting mends. From the last
position, and by how many bytes the parent has taken of what followed, another feeder goes on.
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
HEADER = struct.Struct("<BIQQI")  # what follows, the position behind it, and its length
MOST_AT_ONCE = 256 * 1024  # bytes of a message that is no record alone
HELD_SECONDS = 60.0  # a FIFO, by a feeder that is done: until it is killed
HEAD = 12  # of an object, by which its format is known
Read = Callable[[S3Object, int], bytes]  # from a byte on, as much as there is at once
Write = Callable[[Sequence["bytes | memoryview"]], object]


class Message(NamedTuple):
    """`position`: where the stream stands once `data` is read."""

    kind: int
    position: Position
    data: memoryview = memoryview(b"")


class Part(NamedTuple):
    """Whole records of an object, or some bytes of one that has no records. What follows is record `record`, at byte
    `at`.
    """

    data: memoryview
    record: int
    at: int


def messages(
    read: Read, stream: Stream, position: Position, skip: int, kind: str, crc: Check | None
) -> Iterator[Message]:
    """From `position` on, without the first `skip` bytes. `kind` "": as the objects are. Raises ChannelError."""
    for index in range(position.pieces, len(stream)):
        piece = stream[index]
        if index == position.pieces and (position.record or position.at):
            piece = piece._replace(record=position.record, at=position.at)
        kind, head = known(read, piece, kind)
        for part in parts(read, piece, head, kind, crc):
            passed = min(skip, len(part.data))
            skip -= passed
            over = part.at == piece.source.size
            behind = Position(index + 1) if over else Position(index, part.record, part.at)
            yield Message(DATA, behind, part.data[passed:])
    yield Message(END, Position(len(stream)))


def known(read: Read, piece: Piece, kind: str) -> tuple[str, bytes]:
    """The format of its records, and what was read of it for that. Raises ChannelError."""
    if kind or not piece.size:
        return kind, b""
    head = _more(read, piece.source, 0, b"", min(HEAD, piece.source.size))
    return format_of(head[:HEAD], piece.source.key), b"" if piece.at else head


def parts(read: Read, piece: Piece, buffer: bytes, kind: str, crc: Check | None) -> Iterator[Part]:
    """`buffer`: what was read of it already. Raises ChannelError."""
    source, record, at = piece
    wanted = 1
    while at < source.size:
        buffer = _more(read, source, at, buffer, min(max(wanted, MOST_AT_ONCE), source.size - at))
        last = at + len(buffer) == source.size
        try:
            end, records, wanted = split(kind, buffer, last, crc)
        except Damaged as error:
            sound = split(kind, buffer[: error.at], False, None).records
            raise ChannelError(
                f"{source}, record {record + sound}, at byte {at + error.at}: it is damaged: {error}"
            ) from error
        given = memoryview(buffer)[:end]
        if last and kind == LINES and not buffer.endswith(b"\n"):
            given = memoryview(buffer + b"\n")  # else the next object's first line would be one with it
        at, record, buffer = at + end, record + records, buffer[end:]
        yield Part(given, record, at)


def _more(read: Read, source: S3Object, at: int, buffer: bytes, wanted: int) -> bytes:
    """The buffer with what follows it, `wanted` bytes at least."""
    parts, size = [buffer], len(buffer)
    while size < wanted:
        parts.append(read(source, at + size))
        size += len(parts[-1])
    return b"".join(parts)


def write_all(write: Write, sequence: Iterator[Message], channel: str) -> None:
    """What `messages` gives, with the problem that ends it."""
    position = Position(0)
    try:
        for message in sequence:
            position = message.position
            write([HEADER.pack(message.kind, *position, len(message.data)), message.data])
    except ChannelError as error:
        sentence = f"channel {channel}: {error}".encode()
        write([HEADER.pack(PROBLEM, *position, len(sentence)), sentence])


def objects_by(s3: Any) -> Read:
    """One object after the other."""
    streams: dict[S3Object, ObjectStream] = {}

    def read(source: S3Object, start: int) -> bytes:
        if source not in streams:
            for done in streams.values():
                done.close()
            streams.clear()
            streams[source] = ObjectStream(s3, source)
        return streams[source].some(start)

    return read


def fork(work: Callable[[Write], None], fifo: int = -1, group: int = 0) -> tuple[int, int]:
    """A child that runs `work`, which writes into a pipe. Returns its process and the pipe's other end. With a `group`
    it holds `fifo` open, and ends when it is killed or, its parent being gone, with that group.
    """
    parent = os.getpid()
    mine, its = os.pipe()
    child = os.fork()
    if child:
        os.close(its)
        return child, mine
    code = 1
    try:
        if group:
            with contextlib.suppress(OSError):
                os.setpgid(0, group)
        else:
            die_with(parent)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        keep_only(its, fifo)
        enlarge(its)

        def write(contents: Sequence[bytes | memoryview]) -> None:
            left = [memoryview(content) for content in contents]
            while left:
                written = os.writev(its, left)
                while left and written >= len(left[0]):
                    written -= len(left.pop(0))
                if left:
                    left[0] = left[0][written:]

        work(write)
        code = 0
        if group:
            time.sleep(HELD_SECONDS)
    except BrokenPipeError:
        code = 0  # the parent wants no more, or is gone
        if group:
            time.sleep(HELD_SECONDS)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)  # whatever happened, nothing of the parent is run to its end here
