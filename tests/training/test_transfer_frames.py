"""What a receiver of the state makes of bytes that are not those that were sent: nothing."""

from __future__ import annotations

import socket
import struct
import threading
from typing import Any

import pytest
from bytes_line import Bytes
from dyntrain.training.worker.transfer.feed import Feed
from dyntrain.training.worker.transfer.fetching import MAX_CHUNK_BYTES
from dyntrain.training.worker.transfer.stream import (
    MAX_WORDS_BYTES,
    SALT_BYTES,
    TAG_BYTES,
    FrameKind,
    Receiver,
    StreamError,
    seal,
    send,
    send_sign_of_life,
)
from hypothesis import given
from hypothesis import strategies as st

HOST, TOKEN = "127.0.0.1", "the token of this generation"
SALT = bytes(range(SALT_BYTES))
CHUNKS = [b"first chunk", b"other chunk", b"third chunk"]
both = pytest.mark.parametrize("clear", [False, True], ids=["sealed", "clear"])


def frames(clear: bool, salt: bytes = SALT, token: str = TOKEN) -> list[bytes]:
    """{size}, three chunks, {name}; as they are on the line."""
    closes, lines = seal(token, salt, clear), []
    for kind, data in [
        (FrameKind.WORDS, b'{"size": 1}'),
        *((FrameKind.CHUNK, each) for each in CHUNKS),
        (FrameKind.WORDS, b"{}"),
    ]:
        line: Any = Bytes()
        send(line, closes, kind, memoryview(data))
        lines.append(line.sent)
    return lines


def received(line: bytes, clear: bool, salt: bytes = SALT) -> list[Any]:
    """All that is opened; raises StreamError at the first that is not what was sent."""
    receiver, opened = Receiver(Bytes(line), seal(TOKEN, salt, clear), 1000), list[Any]()  # type: ignore[arg-type]
    for expected in [None, *CHUNKS, None]:
        kind, sealed = receiver.next()
        if kind is FrameKind.WORDS and expected is None:
            opened.append(receiver.words(sealed))
        elif kind is FrameKind.CHUNK and expected is not None:
            into = memoryview(bytearray(len(expected)))
            receiver.open_chunk(sealed, into)
            opened.append(bytes(into))
        else:
            raise StreamError("another kind than belongs here")
    return opened


ALL = [{"size": 1}, *CHUNKS, {}]


@both
def test_what_is_sent_is_what_is_received_with_signs_of_life_between(clear: bool) -> None:
    assert received(b"".join(frames(clear)), clear) == ALL
    line: Any = Bytes()
    send_sign_of_life(line)
    kind, nothing = Receiver(Bytes(line.sent), seal(TOKEN, SALT, clear), 10).next()  # type: ignore[arg-type]
    assert (kind, len(nothing)) == (FrameKind.WAIT, 0)


@both
@given(data=st.data())
def test_no_bit_on_the_line_can_be_another_unseen(clear: bool, data: st.DataObject) -> None:
    """In a frame's head, its bytes or its checksum: a wrong bit in a weight is an error that nobody would see."""
    line = bytearray(b"".join(frames(clear)))
    place = data.draw(st.integers(0, 8 * len(line) - 1))
    line[place // 8] ^= 1 << place % 8
    with pytest.raises(StreamError):
        received(bytes(line), clear)


@both
@given(order=st.lists(st.integers(0, 4), max_size=6).filter(lambda order: order != [0, 1, 2, 3, 4]))
def test_no_frame_can_be_left_out_repeated_or_exchanged(clear: bool, order: list[int]) -> None:
    there = frames(clear)
    if order[:5] == [0, 1, 2, 3, 4]:  # what follows a whole state is read by nobody
        return
    with pytest.raises(StreamError):
        received(b"".join(there[i] for i in order), clear)


@both
def test_no_frame_can_be_of_another_kind(clear: bool) -> None:
    """Words that are written into a weight, or weights that say what the state is called."""
    words, chunk, *_ = frames(clear)
    kind, sealed = Receiver(Bytes(b"\2" + words[1:]), seal(TOKEN, SALT, clear), 1000).next()  # type: ignore[arg-type]
    assert kind is FrameKind.CHUNK
    into = memoryview(bytearray(len(sealed) - TAG_BYTES))
    with pytest.raises(StreamError):
        Receiver(Bytes(), seal(TOKEN, SALT, clear), 1000).open_chunk(sealed, into)  # type: ignore[arg-type]
    receiver = Receiver(Bytes(words + b"\1" + chunk[1:]), seal(TOKEN, SALT, clear), 1000)  # type: ignore[arg-type]
    receiver.words(receiver.next()[1])
    with pytest.raises(StreamError, match="damaged"):
        receiver.words(receiver.next()[1])


@both
@given(cut=st.integers(1, 60))
def test_a_line_that_ends_early_is_an_error(clear: bool, cut: int) -> None:
    line = b"".join(frames(clear))
    with pytest.raises(StreamError):
        received(line[:-cut], clear)


def test_frames_of_another_connection_or_token_are_not_opened() -> None:
    """A recording of one generation's transfer is worth nothing in another."""
    for salt, token in ((bytes(SALT_BYTES), TOKEN), (SALT, "another")):
        with pytest.raises(StreamError):
            received(b"".join(frames(False, salt, token)), False)


@pytest.mark.parametrize(
    ("kind", "size"), [(0, 1), (1, TAG_BYTES - 1), (2, 0), (3, 20), (255, 0), (2, MAX_CHUNK_BYTES + TAG_BYTES + 1)]
)
def test_what_is_no_frame_makes_nobody_wait_for_its_bytes(kind: int, size: int) -> None:
    """Four gigabytes that are announced and never come, or a buffer of as many."""
    line: Any = Bytes(struct.pack(">BI", kind, size))
    with pytest.raises(StreamError, match="the received bytes are no frame"):
        Receiver(line, seal(TOKEN, SALT, True), MAX_CHUNK_BYTES).next()


@pytest.mark.parametrize("size", [MAX_WORDS_BYTES, MAX_WORDS_BYTES + 1, 3 * MAX_WORDS_BYTES, MAX_CHUNK_BYTES])
def test_frames_of_any_size_up_to_the_largest_are_taken(size: int) -> None:
    line: Any = Bytes()
    closes, opens = seal(TOKEN, SALT, True), seal(TOKEN, SALT, True)
    send(line, closes, FrameKind.CHUNK, memoryview(b"x" * size))
    source, target = socket.socketpair()
    with source, target:
        sender = threading.Thread(target=source.sendall, args=(line.sent,))
        sender.start()
        receiver, into = Receiver(target, opens, MAX_CHUNK_BYTES), memoryview(bytearray(size))
        receiver.open_chunk(receiver.next()[1], into)
        sender.join()
    assert bytes(into) == b"x" * size


@pytest.mark.parametrize("more", [-1, 1])
def test_a_chunk_of_another_length_than_its_place_is_refused(more: int) -> None:
    receiver, [_, chunk, *_] = Receiver(Bytes(), seal(TOKEN, SALT, True), 100), frames(True)  # type: ignore[arg-type]
    with pytest.raises(StreamError, match="bytes arrived instead of"):
        receiver.open_chunk(memoryview(chunk)[5:], memoryview(bytearray(len(CHUNKS[0]) + more)))


# ---- feeds


@given(size=st.integers(1, 50), chunk=st.integers(1, 12))
def test_the_parts_of_a_feed_are_its_block_and_the_name_comes_behind_the_last(size: int, chunk: int) -> None:
    block = memoryview(bytes(range(size)))
    feed = Feed(block, "i-source", chunk)
    assert b"".join(bytes(feed.part(i)) for i in range(feed.chunks)) == bytes(block)
    for i in range(feed.chunks):
        assert feed.received_bytes == i * chunk
        assert not feed.wait(i, 0)
        feed.add_chunk()
        assert feed.wait(i, 0)
    assert feed.received_bytes == size
    assert not feed.wait(feed.chunks, 0), "all is there but its name"
    feed.finish("name")
    assert feed.wait(feed.chunks, 0)


def test_whoever_waits_for_a_chunk_of_a_feed_that_ends_is_told() -> None:
    feed = Feed(memoryview(b"0123"), "i-source", 2)
    assert not feed.wait(0, 0)
    feed.end()
    assert [feed.wait(i, 0) for i in range(3)] == [True] * 3
