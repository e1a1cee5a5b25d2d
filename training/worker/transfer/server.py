"""The server that sends the state of the present generation to clients that prove knowledge of its token.

The request is one JSON line {generation, salt, proof, origin, first}. The answer is sixteen bytes of salt, then frames
(`dyntrain.training.worker.transfer.stream`): words {size, chunk, origin, first}, the chunks from `first` on as they
arrive, words {name}. If the connection is closed instead, the request is refused, or the generation is over.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import os
import socket
import threading
import time
from dataclasses import dataclass

from dyntrain.training.worker.transfer.feed import Feed
from dyntrain.training.worker.transfer.stream import (
    LONGEST_WORDS,
    SALT_BYTES,
    Kind,
    Seal,
    proof,
    seal,
    send,
    send_sign_of_life,
    send_words,
)

SIGN_OF_LIFE = 1.0  # seconds between two signs of life, when there is no chunk to send
STALL = 20.0  # seconds without an accepted chunk after which a receiver counts as lost
REQUEST = 5.0  # limit for the request, and for this worker's own order to form the same generation
CONNECTIONS = 64  # at the same time
ACCEPT_PAUSE = 0.5  # pause after a connection could not be accepted
log = logging.getLogger(__name__)


@dataclass
class _Offer:
    generation: int
    token: str
    clear: bool
    feed: Feed | None = None
    over: bool = False


class StateServer:
    """Serves the state on a port of its own. Its threads are daemons: they end with the worker process."""

    def __init__(self, host: str) -> None:
        self._changed = threading.Condition()
        self._offer = _Offer(-1, "", False, over=True)
        self._closed = False
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        self._socket = socket.create_server((host, 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, name="state-server", daemon=True).start()

    def expect(self, generation: int, token: str, clear: bool = False) -> None:
        """Serve requests for this generation from now on, and for no earlier one."""
        with self._changed:
            self._end()
            self._offer = _Offer(generation, token, clear)
            self._changed.notify_all()

    def offer(self, generation: int, feed: Feed) -> None:
        """Offer the present and later chunks of the feed; a second feed replaces the first."""
        with self._changed:
            if self._offer.generation != generation or self._offer.over:
                feed.end()
                return
            if self._offer.feed is not None and self._offer.feed is not feed:
                self._offer.feed.end()
            self._offer.feed = feed
            self._changed.notify_all()

    def withdraw(self, generation: int) -> None:
        """Stop offering the state and release its memory, once all members have the state."""
        with self._changed:
            if self._offer.generation == generation:
                self._end()

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):  # otherwise the accepting thread would accept one more connection
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._changed:
            self._end()

    def _end(self) -> None:
        self._offer.over = True
        if self._offer.feed is not None:
            self._offer.feed.end()
            self._offer.feed = None
        self._changed.notify_all()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if self._closed:
                    return
                log.warning("cannot send the state to other workers at present: %s", error)
                time.sleep(ACCEPT_PAUSE)
                continue
            if not self._free.acquire(blocking=False):
                connection.close()  # a refused client tries again
                continue
            sender = threading.Thread(target=self._attend, args=(connection,), name="state-sender", daemon=True)
            try:
                sender.start()
            except RuntimeError as error:  # no more threads can be started
                log.warning("cannot send the state to other workers at present: %s", error)
                self._free.release()
                connection.close()

    def _attend(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(REQUEST)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._serve(connection)
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.info("a transfer of the state ended early: %s", error)
        finally:
            self._free.release()

    def _serve(self, connection: socket.socket) -> None:
        request = json.loads(_line(connection))
        generation, salt = int(request["generation"]), bytes.fromhex(request["salt"])
        origin, first = request["origin"], int(request["first"])
        offer = self._offer_of(generation)
        received_proof = str(request["proof"])
        if offer is None or not hmac.compare_digest(
            proof(offer.token, generation, request["salt"]).encode(), received_proof.encode()
        ):
            log.warning("refused a request for the state of generation %d", generation)
            return
        connection.settimeout(STALL)
        own_salt = os.urandom(SALT_BYTES)
        connection.sendall(own_salt)
        connection_seal = seal(offer.token, salt + own_salt, offer.clear)
        if (feed := self._feed_of(offer, connection)) is not None:
            first = first if origin == feed.origin and 0 <= first <= feed.chunks else 0
            words = {"size": len(feed.block), "chunk": feed.chunk, "origin": feed.origin, "first": first}
            send_words(connection, connection_seal, words)
            _send_chunks(connection, connection_seal, feed, first)

    def _offer_of(self, generation: int) -> _Offer | None:
        """Return the offer of a generation, or None if it is over or this worker was not ordered in time to form it."""
        with self._changed:
            self._changed.wait_for(lambda: self._offer.generation >= generation, REQUEST)
            return self._offer if self._offer.generation == generation and not self._offer.over else None

    def _feed_of(self, offer: _Offer, connection: socket.socket) -> Feed | None:
        """Return the feed once this worker has a part of the state, sending signs of life; None if the offer ended."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: offer.feed is not None or offer.over, SIGN_OF_LIFE)
                if offer.feed is not None or offer.over:
                    return offer.feed
            send_sign_of_life(connection)


def _send_chunks(connection: socket.socket, connection_seal: Seal, feed: Feed, first: int) -> None:
    for index in range(first, feed.chunks + 1):
        while not feed.wait(index, SIGN_OF_LIFE):
            send_sign_of_life(connection)
        if index < feed.ready:
            send(connection, connection_seal, Kind.CHUNK, feed.part(index))
        elif index == feed.chunks and feed.name is not None:
            send_words(connection, connection_seal, {"name": feed.name})
        else:
            return  # the feed is void


def _line(connection: socket.socket) -> bytes:
    """Return the request. Raises OSError if the request does not arrive within REQUEST seconds, or is too long."""
    deadline, line = time.monotonic() + REQUEST, b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        received = connection.recv(LONGEST_WORDS)
        line += received
        if not received or len(line) > LONGEST_WORDS:
            raise OSError("no request arrived")
    return line
