"""Fetches the training state from other members, while the chunks that have arrived are passed on."""

from __future__ import annotations

import itertools
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dyntrain.training.worker.state.block import checksum
from dyntrain.training.worker.transfer.feed import Feed
from dyntrain.training.worker.transfer.stream import (
    SALT_BYTES,
    FrameKind,
    Receiver,
    StreamError,
    proof,
    receive_exactly,
    seal,
)

SILENCE_SECONDS = 5.0  # without a sign of life (one a second) for so long, the source or its link counts as dead
RETRY_PAUSE_SECONDS = 0.2  # before the next source is tried
MAX_CHUNK_BYTES = 4 << 20  # that a source may send at once
log = logging.getLogger(__name__)


class TransferError(RuntimeError):
    """The whole state could not be fetched within the time limit, or the state arrived damaged."""


class Superseded(RuntimeError):
    """A later order of the coordinator has replaced the order for this work, so its result is no longer needed."""


@dataclass(frozen=True)
class FetchRequest:
    """The parameters of `fetch`.

    `sources` contains (host, port) of each source, in the order of the attempts. `allocate` returns memory of the given
    number of bytes. `share` is called with each new feed. The function `wanted` is called repeatedly, and the fetch
    ends with Superseded when `wanted` returns false. `on_progress` is called with (received, size) in bytes after each
    chunk. If `clear` is true, the transfer is not encrypted.
    """

    generation: int
    token: str  # secret of the generation's transfer
    sources: Sequence[tuple[str, int]]  # (host, port), in the order of the attempts
    allocate: Callable[[int], memoryview]  # returns memory of a number of bytes
    share: Callable[[Feed], None] = lambda feed: None  # called with each new feed
    wanted: Callable[[], bool] = lambda: True  # whether the state is still wanted
    on_progress: Callable[[int, int], None] = lambda received, size: None  # in bytes
    clear: bool = False  # without encryption
    silence: float = SILENCE_SECONDS  # seconds without a sign of life after which a source is dead


def fetch(request: FetchRequest, timeout_seconds: float) -> Feed:
    """Fetch the whole state and verify its checksum.

    When a source fails, the fetch continues at the same chunk with the next source. Raises Superseded if `wanted`
    returns false. Raises TransferError after `timeout_seconds`, or if the checksum is wrong.
    """
    state_fetch, deadline, last_error = (
        _StateFetch(request),
        time.monotonic() + timeout_seconds,
        "the order names no source",
    )
    for host, port in itertools.cycle(request.sources):
        try:
            return state_fetch.fetch_from(host, port, deadline)
        except OSError as error:
            last_error = f"{host}:{port}: {error}"
            log.info("could not fetch the state from %s", last_error)
        if time.monotonic() + RETRY_PAUSE_SECONDS > deadline:
            break
        time.sleep(RETRY_PAUSE_SECONDS)
    raise TransferError(
        f"state of generation {request.generation}: {state_fetch.received_bytes} bytes within {timeout_seconds:.0f} s; "
        f"{last_error}"
    )


class _StateFetch:
    """A fetch in progress, which uses one source after another."""

    def __init__(self, request: FetchRequest) -> None:
        self._request = request
        self._feed: Feed | None = None

    @property
    def received_bytes(self) -> int:
        return self._feed.received_bytes if self._feed else 0

    def fetch_from(self, host: str, port: int, deadline: float) -> Feed:
        """Fetch the state's remaining chunks from one source.

        Raises OSError if another source should be tried.
        """
        self._check_wanted()
        with socket.create_connection((host, port), timeout=self._request.silence) as connection:
            receiver = self._send_request(connection)
            feed = self._feed = self._feed_for(receiver.words(self._next_frame(receiver, FrameKind.WORDS, deadline)))
            while feed.ready < feed.chunks:
                receiver.open_chunk(self._next_frame(receiver, FrameKind.CHUNK, deadline), feed.part(feed.ready))
                feed.add_chunk()
                self._request.on_progress(feed.received_bytes, len(feed.block))
            state_checksum = str(receiver.words(self._next_frame(receiver, FrameKind.WORDS, deadline)).get("name"))
        if checksum(feed.block).hex() != state_checksum:
            feed.end()
            raise TransferError(
                f"the state of generation {self._request.generation} arrived damaged from {host}: its checksum is wrong"
            )
        feed.finish(state_checksum)
        return feed

    def _check_wanted(self) -> None:
        if not self._request.wanted():
            raise Superseded(f"generation {self._request.generation} was withdrawn")

    def _send_request(self, connection: socket.socket) -> Receiver:
        request, client_salt = self._request, os.urandom(SALT_BYTES)
        request_fields = {
            "generation": request.generation,
            "salt": client_salt.hex(),
            "proof": proof(request.token, request.generation, client_salt.hex()),
            "origin": self._feed.origin if self._feed else None,
            "first": self._feed.ready if self._feed else 0,
        }
        connection.sendall(json.dumps(request_fields).encode() + b"\n")
        server_salt = bytes(receive_exactly(connection, memoryview(bytearray(SALT_BYTES))))
        return Receiver(connection, seal(request.token, client_salt + server_salt, request.clear), MAX_CHUNK_BYTES)

    def _next_frame(self, receiver: Receiver, expected: FrameKind, deadline: float) -> memoryview:
        while True:
            frame_kind, sealed_frame = receiver.next()
            self._check_wanted()
            if time.monotonic() > deadline:
                raise StreamError("no state arrived in time: the source is itself still waiting for the state")
            if frame_kind is expected:
                return sealed_frame
            if frame_kind is not FrameKind.WAIT:
                raise StreamError(f"received {frame_kind.name.lower()} instead of {expected.name.lower()}")

    def _feed_for(self, first_message: dict[str, Any]) -> Feed:
        """Return the present feed if the source sends the feed's next chunk, otherwise a new feed.

        After a new feed, the workers that fetch from this worker must start again at the first chunk.
        """
        try:
            state_size, chunk_size, first_chunk, origin = (
                int(first_message["size"]),
                int(first_message["chunk"]),
                int(first_message["first"]),
                str(first_message["origin"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StreamError("the source's first message lacks the size, chunk, origin or first chunk") from error
        if not (state_size > 0 and 0 < chunk_size <= MAX_CHUNK_BYTES):
            raise StreamError(f"the source offers {state_size} bytes in chunks of {chunk_size}")
        feed = self._feed
        if feed is not None and (feed.origin, feed.ready, len(feed.block)) == (origin, first_chunk, state_size):
            return feed
        if first_chunk:
            raise StreamError(f"the source begins at chunk {first_chunk}")
        feed = Feed(self._request.allocate(state_size), origin, chunk_size)
        self._request.share(feed)
        return feed
