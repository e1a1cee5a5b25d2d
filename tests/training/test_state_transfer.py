"""The state's way to the members that lack it, on real sockets: whole, secret, and whatever happens to a link or a
member on the way.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training.worker.membership.background import in_background
from dyntrain.training.worker.state.block import allocate, checksum
from dyntrain.training.worker.transfer.feed import Feed
from dyntrain.training.worker.transfer.fetching import FetchRequest, Superseded, TransferError, fetch
from dyntrain.training.worker.transfer.server import StateServer
from dyntrain.training.worker.transfer.stream import SALT_BYTES, proof
from waiting import wait_for

HOST, TOKEN, GENERATION = "127.0.0.1", "the token of this generation", 7
CHUNK = 1 << 12
BLOCK = memoryview(os.urandom(50 * CHUNK + 17))
PATIENCE = 60.0


class Member:
    """A worker's part in it: what it has it offers, what it lacks it fetches and offers meanwhile."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.server = StateServer(HOST)
        stack.callback(self.server.close)
        self.server.expect(GENERATION, TOKEN)
        self.feeds: list[Feed] = []
        self.wanted = True

    @property
    def address(self) -> tuple[str, int]:
        return (HOST, self.server.port)

    def holds(self, feed: Feed | None = None, origin: str = "i-source") -> Feed:
        feed = feed or Feed.whole(BLOCK, origin, CHUNK)
        self.server.offer(GENERATION, feed)
        return feed

    def named(self, origin: str = "i-source") -> None:
        self.holds(origin=origin).finish(checksum(BLOCK).hex())

    def fetch_from(self, *sources: tuple[str, int], **more: Any) -> Future[Feed]:
        request = FetchRequest(GENERATION, TOKEN, sources, allocate, self._share, lambda: self.wanted, **more)
        return in_background(lambda: fetch(request, patient(PATIENCE)))

    def _share(self, feed: Feed) -> None:
        self.feeds.append(feed)
        self.server.offer(GENERATION, feed)


class Link:
    """Between a member and those who ask it: takes bytes along until `broken` says what becomes of the next ones."""

    def __init__(self, to: tuple[str, int], stack: contextlib.ExitStack, broken: Callable[[bytes, int], bytes]) -> None:
        self._to, self._broken = to, broken
        self._listening = socket.create_server((HOST, 0))
        self.address = (HOST, self._listening.getsockname()[1])
        self.connections = 0
        stack.callback(self._close)
        threading.Thread(target=self._run, daemon=True).start()

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                self.connections += 1
                threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError), near, socket.create_connection(self._to) as far:
            threading.Thread(target=self._requests, args=(near, far), daemon=True).start()
            passed = 0
            while data := far.recv(CHUNK):
                data = self._broken(data, passed)
                if not data:
                    return
                near.sendall(data)
                passed += len(data)

    def _requests(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(CHUNK):
                far.sendall(data)


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def arrived(future: Future[Feed]) -> bytes:
    return bytes(future.result(patient(PATIENCE)).block)


def test_the_state_goes_down_a_chain_and_the_source_sends_it_once(stack: contextlib.ExitStack) -> None:
    """With one source for everybody, sixty-three joiners of a large model would wait sixty-three times as long."""
    source = Member(stack)
    sent: list[int] = []

    def count(data: bytes, passed: int) -> bytes:
        sent.append(len(data))
        return data

    behind = Link(source.address, stack, count)
    members = [Member(stack) for _ in range(5)]
    addresses = [behind.address, *(member.address for member in members)]
    fetched = [member.fetch_from(addresses[number]) for number, member in enumerate(members)]
    source.named()
    assert [arrived(future) == BLOCK for future in fetched] == [True] * 5
    assert behind.connections == 1
    assert sum(sent) < 1.2 * len(BLOCK)


def test_who_is_behind_gets_chunks_before_the_one_in_front_has_all(stack: contextlib.ExitStack) -> None:
    """Else a chain would be as slow as one after the other."""
    source, first, second = Member(stack), Member(stack), Member(stack)
    half = source.holds(Feed(BLOCK, "i-source", CHUNK))
    both = [first.fetch_from(source.address), second.fetch_from(first.address)]
    for _ in range(half.chunks // 2):
        half.add_chunk()
    wait_for(lambda: second.feeds and second.feeds[0].ready == half.chunks // 2, PATIENCE)
    while half.ready < half.chunks:
        half.add_chunk()
    half.finish(checksum(BLOCK).hex())
    assert [arrived(future) == BLOCK for future in both] == [True, True]


@pytest.mark.parametrize("clear", [False, True])
def test_a_damaged_chunk_is_fetched_again_and_nothing_else_is(stack: contextlib.ExitStack, clear: bool) -> None:
    """A wrong bit in a weight is an error that nobody would see."""
    source, joiner = Member(stack), Member(stack)
    source.server.expect(GENERATION, TOKEN, clear)
    source.named()
    damaged: list[int] = []

    def damage(data: bytes, passed: int) -> bytes:
        if damaged or passed < 10 * CHUNK:
            return data
        damaged.append(passed)
        return bytes([data[0] ^ 1]) + data[1:]

    link = Link(source.address, stack, damage)
    assert arrived(joiner.fetch_from(link.address, clear=clear)) == BLOCK
    assert damaged
    assert link.connections == 2
    assert len(joiner.feeds) == 1, "what had arrived was kept"


def test_a_cut_link_costs_what_is_not_there_yet(stack: contextlib.ExitStack) -> None:
    source, joiner = Member(stack), Member(stack)
    source.named()
    through: list[int] = []

    def cut(data: bytes, passed: int) -> bytes:
        through.append(len(data))
        return data if passed < 20 * CHUNK else b""

    link = Link(source.address, stack, cut)
    assert arrived(joiner.fetch_from(link.address)) == BLOCK
    assert link.connections >= 3
    assert sum(through) < 1.6 * len(BLOCK)


def test_a_member_that_dies_in_the_middle_of_a_chain_is_gone_around(stack: contextlib.ExitStack) -> None:
    source, joiner = Member(stack), Member(stack)
    source.named()
    dying = StateServer(HOST)
    dying.expect(GENERATION, TOKEN)
    some = Feed(BLOCK, "i-source", CHUNK)
    dying.offer(GENERATION, some)
    for _ in range(12):
        some.add_chunk()
    future = joiner.fetch_from((HOST, dying.port), source.address)
    wait_for(lambda: joiner.feeds and joiner.feeds[0].ready == 12, PATIENCE)
    dying.close()
    assert arrived(future) == BLOCK
    assert len(joiner.feeds) == 1


def test_a_member_that_is_silent_is_given_up_though_its_connection_stands(stack: contextlib.ExitStack) -> None:
    """A frozen process, or a link that drops everything: no error ever comes."""
    source, joiner = Member(stack), Member(stack)
    source.named()
    with socket.create_server((HOST, 0)) as frozen:
        block = arrived(joiner.fetch_from((HOST, frozen.getsockname()[1]), source.address, silence=1.0))
    assert block == BLOCK


def test_who_waits_itself_gives_signs_of_life(stack: contextlib.ExitStack) -> None:
    """A source that loads a large commit from slow storage has not died; those behind it must not look for another."""
    source, joiner = Member(stack), Member(stack)
    signs: list[bytes] = []

    def count(data: bytes, passed: int) -> bytes:
        signs.append(data)
        return data

    link = Link(source.address, stack, count)
    future = joiner.fetch_from(link.address, silence=patient(PATIENCE))
    wait_for(lambda: len(signs) > 3, PATIENCE)  # the first is the server's salt
    assert not joiner.feeds, "none of them is taken for the state"
    source.named()
    assert arrived(future) == BLOCK
    assert link.connections == 1


def test_of_two_sources_with_other_bytes_no_mixture_is_made(stack: contextlib.ExitStack) -> None:
    """Two holders agree in what is trained, and may differ in what each keeps for itself."""
    other = memoryview(bytes(len(BLOCK)))
    first, second, joiner, behind = Member(stack), Member(stack), Member(stack), Member(stack)
    part = first.holds(Feed(BLOCK, "i-first", CHUNK))
    for _ in range(9):
        part.add_chunk()
    second.holds(Feed.whole(other, "i-second", CHUNK)).finish(checksum(other).hex())
    futures = [joiner.fetch_from(first.address, second.address), behind.fetch_from(joiner.address)]
    wait_for(lambda: behind.feeds and behind.feeds[0].ready == 9, PATIENCE)
    first.server.close()
    assert [arrived(future) == other for future in futures] == [True, True]


def test_only_who_knows_the_generations_token_is_served(stack: contextlib.ExitStack) -> None:
    """In the clear nothing else keeps a stranger from the weights."""
    source = Member(stack)
    source.server.expect(GENERATION, TOKEN, clear=True)
    source.named()
    answers = [
        answer(source.address, generation, token)
        for generation, token in ((GENERATION, TOKEN), (GENERATION, "a guess"), (GENERATION - 1, TOKEN))
    ]
    assert [len(reply) > len(BLOCK) for reply in answers] == [True, False, False]
    assert answers[1:] == [b"", b""]


def answer(address: tuple[str, int], generation: int, token: str) -> bytes:
    """All that the server says to one request, until it hangs up."""
    salt = bytes(SALT_BYTES).hex()
    request = {"generation": generation, "salt": salt, "proof": proof(token, generation, salt), "first": 0}
    with (
        socket.create_connection(address, timeout=patient(PATIENCE)) as connection,
        connection.makefile("rb") as stream,
    ):
        connection.sendall(json.dumps({**request, "origin": None}).encode() + b"\n")
        return stream.read()


def test_what_crosses_the_network_tells_nothing_of_the_state(stack: contextlib.ExitStack) -> None:
    source, joiner = Member(stack), Member(stack)
    block = memoryview(b"a weight" * CHUNK)
    source.holds(Feed.whole(block, "i-source", CHUNK)).finish(checksum(block).hex())
    seen: list[bytes] = []

    def listen(data: bytes, passed: int) -> bytes:
        seen.append(data)
        return data

    link = Link(source.address, stack, listen)
    assert arrived(joiner.fetch_from(link.address)) == block
    assert b"a weight" not in b"".join(seen)
    assert TOKEN.encode() not in b"".join(seen)


def test_a_fetch_for_a_generation_that_was_taken_back_ends(stack: contextlib.ExitStack) -> None:
    """Its memory is wanted for the next one."""
    source, joiner = Member(stack), Member(stack)
    future = joiner.fetch_from(source.address)
    joiner.wanted = False
    with pytest.raises(Superseded):
        future.result(patient(PATIENCE))


def test_a_source_that_is_gone_is_an_error_within_the_bound_that_names_it() -> None:
    server = StateServer(HOST)
    server.close()
    with pytest.raises(TransferError, match=f"{HOST}:{server.port}: .*refused"):
        fetch(FetchRequest(1, "t", [(HOST, server.port)], allocate), 0.5)


def test_what_is_withdrawn_is_let_go_of(stack: contextlib.ExitStack) -> None:
    """Its memory is one of three buffers; in use for ever, no state would be safe any more."""
    source = Member(stack)
    feed = source.holds()
    source.server.withdraw(GENERATION)
    assert feed.is_void
    late: Any = Feed.whole(BLOCK, "i-source", CHUNK)
    source.server.offer(GENERATION, late)
    assert late.is_void
