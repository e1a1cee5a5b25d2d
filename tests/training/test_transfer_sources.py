"""What a joiner makes of a source that says something else than its state, or another one: it asks elsewhere, or takes
nothing. It never makes one state of two.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training.worker.state.block import allocate, checksum
from dyntrain.training.worker.transfer.feed import Feed
from dyntrain.training.worker.transfer.fetching import (
    MAX_CHUNK_BYTES,
    FetchRequest,
    Superseded,
    TransferError,
    _StateFetch,
    fetch,
)
from dyntrain.training.worker.transfer.stream import (
    SALT_BYTES,
    FrameKind,
    StreamError,
    seal,
    send,
    send_sign_of_life,
    send_words,
)

HOST, TOKEN = "127.0.0.1", "the token of this generation"
SALT = bytes(range(SALT_BYTES))


Answer = Callable[[Any, Any], None]
REQUESTS: list[dict[str, Any]] = []  # of all sources


@pytest.fixture
def source() -> Iterator[Callable[[Answer], tuple[str, int]]]:
    """A source that knows the token, and sends what the test says."""
    with contextlib.ExitStack() as stack:

        def sends(answer: Answer) -> tuple[str, int]:
            listener = stack.enter_context(socket.create_server((HOST, 0)))

            def run() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        near, _ = listener.accept()
                        with near, contextlib.suppress(OSError):
                            request = json.loads(near.makefile("rb").readline())
                            REQUESTS.append(request)
                            near.sendall(SALT)
                            answer(near, seal(TOKEN, bytes.fromhex(request["salt"]) + SALT, False))

            threading.Thread(target=run, daemon=True).start()
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            return (HOST, listener.getsockname()[1])

        yield sends


def asks(*sources: tuple[str, int], seconds: float = 0.3, **more: Any) -> Any:
    return fetch(FetchRequest(7, TOKEN, sources, more.pop("allocate", allocate), **more), seconds)


def asks_once(address: tuple[str, int]) -> Feed:
    return _StateFetch(FetchRequest(7, TOKEN, [address], allocate)).fetch_from(*address, time.monotonic() + patient(60))


WORDS = {"size": 10, "chunk": 4, "first": 0, "origin": "i-source"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 0},
        {"size": -1},
        {"chunk": 0},
        {"chunk": -4},
        {"chunk": MAX_CHUNK_BYTES + 1},
        {"size": "many"},
        {"size": None},
        {"first": 1},
        {"first": -1},
    ],
)
def test_no_memory_is_taken_for_what_a_source_cannot_mean(source: Any, wrong: dict[str, Any]) -> None:
    taken: list[int] = []

    def room(size: int) -> memoryview:
        taken.append(size)
        return allocate(size)

    address = source(lambda line, closes: send_words(line, closes, {**WORDS, **wrong}))
    with pytest.raises(TransferError, match="0 bytes within 0 s"):
        asks(address, allocate=room)
    assert taken == []


@pytest.mark.parametrize("missing", ["size", "chunk", "first", "origin"])
def test_a_source_that_leaves_something_out_is_not_believed(source: Any, missing: str) -> None:
    words = {name: value for name, value in WORDS.items() if name != missing}
    with pytest.raises(StreamError, match="first message lacks"):
        asks_once(source(lambda line, closes: send_words(line, closes, words)))


@pytest.mark.parametrize("first", [FrameKind.CHUNK, FrameKind.WORDS])
def test_what_comes_where_something_else_belongs_is_not_taken(source: Any, first: FrameKind) -> None:
    def answer(line: Any, closes: Any) -> None:
        if first is FrameKind.WORDS:
            send_words(line, closes, WORDS)
        send(line, closes, first, memoryview(b'{"name":1}'))

    with pytest.raises(StreamError, match=r"received .* instead of"):
        asks_once(source(answer))


@pytest.mark.parametrize(
    ("says", "goes_on"),
    [
        ({"first": 1}, True),
        ({"first": 0}, False),
        ({"first": 1, "origin": "i-other"}, None),
        ({"first": 2}, None),
        ({"first": 1, "size": 11}, None),
        ({"first": 0, "origin": "i-other"}, False),
    ],
)
def test_what_has_come_is_gone_on_with_where_the_next_source_begins_there_with_the_same_state(
    source: Any, says: dict[str, Any], goes_on: bool | None
) -> None:
    """Else it is begun anew, by those behind as well. Two halves of two states are none."""
    feeds: list[Any] = []

    def cut(line: Any, closes: Any) -> None:
        send_words(line, closes, WORDS)
        send(line, closes, FrameKind.CHUNK, memoryview(b"0123"))

    def rest(line: Any, closes: Any) -> None:
        send_words(line, closes, {**WORDS, **says})
        for part in [b"0123", b"4567", b"89"][1 if goes_on else 0 :]:
            send(line, closes, FrameKind.CHUNK, memoryview(part))
        send_words(line, closes, {"name": checksum(b"0123456789").hex()})

    REQUESTS.clear()
    work = _StateFetch(FetchRequest(7, TOKEN, [], allocate, feeds.append))
    until = time.monotonic() + patient(60)
    with pytest.raises(StreamError, match="closed"):
        work.fetch_from(*source(cut), until)
    assert work.received_bytes == 4
    assert (REQUESTS[0]["origin"], REQUESTS[0]["first"], REQUESTS[0]["generation"]) == (None, 0, 7)
    if goes_on is None:
        with pytest.raises(StreamError, match="the source begins at chunk"):
            work.fetch_from(*source(rest), until)
        assert len(feeds) == 1
        return
    feed = work.fetch_from(*source(rest), until)
    assert bytes(feed.block) == b"0123456789"
    assert feeds == ([feed] if goes_on else [feeds[0], feed])
    assert (REQUESTS[1]["origin"], REQUESTS[1]["first"]) == ("i-source", 1), "what it has is not sent again"
    assert REQUESTS[0]["salt"] != REQUESTS[1]["salt"]


def test_who_is_not_wanted_any_more_asks_nobody_and_takes_no_more_chunks(source: Any) -> None:
    """The memory is wanted for the next generation's state."""
    wanted = True

    def answer(line: Any, closes: Any) -> None:
        send_words(line, closes, WORDS)
        send(line, closes, FrameKind.CHUNK, memoryview(b"0123"))
        send(line, closes, FrameKind.CHUNK, memoryview(b"4567"))

    def come(received: int, size: int) -> None:
        nonlocal wanted
        assert received == 4
        wanted = False

    address = source(answer)
    request = FetchRequest(7, TOKEN, [address], allocate, wanted=lambda: wanted, on_progress=come)
    with pytest.raises(Superseded):
        fetch(request, patient(60))
    REQUESTS.clear()
    with pytest.raises(Superseded):
        fetch(request, patient(60))
    assert REQUESTS == []


@pytest.mark.parametrize("name", [checksum(b"another").hex(), None, ""])
def test_a_state_that_is_not_what_its_name_says_is_given_to_nobody(source: Any, name: str | None) -> None:
    """Not asked for again: whoever packed it has it wrong in memory, or somebody forges."""
    shared: list[Feed] = []
    connections: list[Any] = []

    def answer(line: Any, closes: Any) -> None:
        connections.append(line)
        send_words(line, closes, WORDS)
        for part in (b"0123", b"4567", b"89"):
            send(line, closes, FrameKind.CHUNK, memoryview(part))
        send_words(line, closes, {} if name is None else {"name": name})

    with pytest.raises(TransferError, match="its checksum is wrong"):
        asks(source(answer), seconds=patient(60), share=shared.append)
    assert len(connections) == 1
    [feed] = shared
    assert feed.is_void
    assert feed.name is None


def test_a_source_that_waits_itself_is_not_waited_for_beyond_the_bound(source: Any) -> None:
    def answer(line: Any, closes: Any) -> None:
        while True:
            send_sign_of_life(line)
            threading.Event().wait(0.02)

    with pytest.raises(TransferError, match="the source is itself still waiting for the state"):
        asks(source(answer))


def test_how_much_has_come_is_told_chunk_by_chunk(source: Any) -> None:
    progress: list[tuple[int, int]] = []

    def answer(line: Any, closes: Any) -> None:
        send_words(line, closes, WORDS)
        for part in (b"0123", b"4567", b"89"):
            send(line, closes, FrameKind.CHUNK, memoryview(part))
        send_words(line, closes, {"name": checksum(b"0123456789").hex()})

    feed = asks(source(answer), seconds=patient(60), on_progress=lambda got, size: progress.append((got, size)))
    assert bytes(feed.block) == b"0123456789"
    assert progress == [(4, 10), (8, 10), (10, 10)]
    assert feed.name == checksum(feed.block).hex()
