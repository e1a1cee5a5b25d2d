"""Whom a member hands its state to, how much of it, and for how long."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from bytes_line import Bytes
from dyntrain.controller.local.pace import patient
from dyntrain.training.worker.state.block import checksum
from dyntrain.training.worker.transfer import server as serving
from dyntrain.training.worker.transfer.feed import Feed
from dyntrain.training.worker.transfer.server import StateServer
from dyntrain.training.worker.transfer.stream import (
    MAX_WORDS_BYTES,
    SALT_BYTES,
    TAG_BYTES,
    FrameKind,
    Receiver,
    StreamError,
    proof,
    seal,
)

HOST, TOKEN = "127.0.0.1", "the token of this generation"
SALT = bytes(range(SALT_BYTES))


@pytest.fixture
def server() -> Iterator[StateServer]:
    server = StateServer(HOST)
    yield server
    server.close()


def offered(server: StateServer, generation: int = 7) -> Feed:
    block = memoryview(b"0123456789" * 2)
    server.expect(generation, TOKEN, clear=True)
    feed = Feed.whole(block, "i-source", 4)
    feed.finish(checksum(block).hex())
    server.offer(generation, feed)
    return feed


def said_to(server: StateServer, **fields: Any) -> list[Any] | None:
    """The server's words and chunks; None where it said nothing at all."""
    salt = SALT.hex()
    line = {"generation": 7, "salt": salt, "proof": proof(TOKEN, 7, salt), "origin": None, "first": 0, **fields}
    with socket.create_connection((HOST, server.port), timeout=patient(30)) as connection:
        connection.sendall(json.dumps(line).encode() + b"\n")
        with connection.makefile("rb") as file, contextlib.suppress(ConnectionResetError):
            if len(own := file.read(SALT_BYTES)) < SALT_BYTES:
                return None
            answer = file.read()
    receiver, contents = Receiver(Bytes(answer), seal(TOKEN, SALT + own, True), 100), list[Any]()  # type: ignore[arg-type]
    with contextlib.suppress(StreamError):
        while True:
            kind, sealed = receiver.next()
            if kind is FrameKind.WORDS:
                contents.append(receiver.words(sealed))
            else:
                into = memoryview(bytearray(len(sealed) - TAG_BYTES))
                receiver.open_chunk(sealed, into)
                contents.append(bytes(into))
    return contents


@pytest.mark.parametrize(
    ("origin", "first", "begins"),
    [
        (None, 0, 0),
        ("i-source", 0, 0),
        ("i-source", 3, 3),
        ("i-source", 5, 5),
        ("i-source", 6, 0),
        ("i-source", -1, 0),
        ("i-other", 3, 0),
        (None, 3, 0),
    ],
)
def test_who_goes_on_gets_what_it_lacks_of_the_same_state_and_all_of_another(
    server: StateServer, origin: str | None, first: int, begins: int
) -> None:
    feed = offered(server)
    answer = said_to(server, origin=origin, first=first)
    assert answer is not None
    assert answer[0] == {"size": 20, "chunk": 4, "origin": "i-source", "first": begins}
    assert b"".join(answer[1:-1]) == bytes(feed.block[4 * begins :])
    assert answer[-1] == {"name": feed.name}


@pytest.mark.parametrize(
    "fields",
    [
        {"proof": proof("a guess", 7, SALT.hex())},
        {"proof": proof(TOKEN, 6, SALT.hex())},
        {"proof": proof(TOKEN, 7, bytes(SALT_BYTES).hex())},
        {"proof": ""},
        {"proof": None},
        {"proof": "ü"},
        {"salt": "no hex"},
        {"generation": 6, "proof": proof(TOKEN, 6, SALT.hex())},
        {"generation": None},
        {"first": "x"},
    ],
)
def test_who_cannot_prove_it_or_asks_nonsense_gets_no_byte_and_others_are_served_after_it(
    server: StateServer, fields: dict[str, Any]
) -> None:
    offered(server)
    assert said_to(server, **fields) is None
    assert said_to(server)


def test_of_a_generation_that_comes_the_next_moment_the_state_is_waited_for(server: StateServer) -> None:
    """Members are told to form one after another."""
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(said_to(server)))
    asking.start()
    offered(server)
    asking.join(patient(30))
    assert answers[0] is not None
    assert len(answers[0]) == 7


def test_a_generation_that_is_over_or_replaced_is_handed_out_no_more(server: StateServer) -> None:
    first = offered(server)
    for another in (6, 8):
        server.withdraw(another)
    assert not first.is_void, "those were others'"
    assert said_to(server)
    early = Feed.whole(first.block, "i-early", 4)
    server.offer(8, early)
    assert early.is_void, "nobody was told to expect it"
    second = offered(server, 8)
    assert first.is_void
    assert said_to(server) is None
    late = Feed.whole(first.block, "i-late", 4)
    server.offer(7, late)
    assert late.is_void, "its memory is wanted"
    server.offer(8, second)
    assert not second.is_void, "the same once more"
    third = Feed.whole(first.block, "i-third", 4)
    server.offer(8, third)
    assert (second.is_void, third.is_void) == (True, False)
    server.withdraw(8)
    assert third.is_void
    again = Feed.whole(first.block, "i-again", 4)
    server.offer(8, again)
    assert again.is_void, "all have it"
    assert said_to(server, generation=8, proof=proof(TOKEN, 8, SALT.hex())) is None


def test_a_request_that_never_ends_is_given_up(server: StateServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty-four of them, and no joiner would get the state."""
    offered(server)
    for words in (b"", b"{", b"x" * (MAX_WORDS_BYTES + 1)):
        with monkeypatch.context() as short:
            short.setattr(serving, "REQUEST_SECONDS", 0.1)
            with socket.create_connection((HOST, server.port), timeout=patient(30)) as connection:
                connection.sendall(words)
                with contextlib.suppress(ConnectionResetError):
                    assert connection.recv(1) == b""
    assert said_to(server)
