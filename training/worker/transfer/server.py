"""The server that sends the training state for the present generation to clients that know the generation's token.

A client's request is one JSON line {generation, salt, proof, origin, first}. The server answers with sixteen bytes of
salt, then with frames (`dyntrain.training.worker.transfer.stream`): a JSON object {size, chunk, origin, first}, the
chunks from `first` on as they arrive, and a JSON object {name}. If the server closes the connection without an
answer, the request is refused or the generation is over.
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
    MAX_WORDS_BYTES,
    SALT_BYTES,
    FrameKind,
    Seal,
    proof,
    seal,
    send,
    send_sign_of_life,
    send_words,
)

SIGN_OF_LIFE_SECONDS = 1.0  # seconds between two signs of life, when there is no chunk to send
STALL_SECONDS = 20.0  # seconds without an accepted chunk after which a receiver counts as lost
REQUEST_SECONDS = 5.0  # limit for the request, and for this worker's own order to form the same generation
MAX_CONNECTIONS = 64  # at the same time
ACCEPT_PAUSE_SECONDS = 0.5  # pause after a connection could not be accepted
log = logging.getLogger(__name__)


@dataclass
class _StateOffer:
    generation: int
    token: str  # secret of the generation's transfer
    clear: bool  # without encryption
    feed: Feed | None = None  # the state, once this worker has a part of it
    over: bool = False  # whether the offer was withdrawn


class StateServer:
    """Serves the training state on a port of its own.

    The server's threads are daemon threads, which end with the process.
    """

    def __init__(self, host: str) -> None:
        self._changed = threading.Condition()
        self._offer = _StateOffer(-1, "", False, over=True)
        self._closed = False
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._socket = socket.create_server((host, 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept_connections, name="state-server", daemon=True).start()

    def expect(self, generation: int, token: str, clear: bool = False) -> None:
        """Serve requests for this generation from now on, and refuse requests for earlier generations."""
        with self._changed:
            self._end_offer()
            self._offer = _StateOffer(generation, token, clear)
            self._changed.notify_all()

    def offer(self, generation: int, feed: Feed) -> None:
        """Send the chunks of `feed`, also those that arrive later, to clients.

        A second feed replaces the first feed.
        """
        with self._changed:
            if self._offer.generation != generation or self._offer.over:
                feed.end()
                return
            if self._offer.feed is not None and self._offer.feed is not feed:
                self._offer.feed.end()
            self._offer.feed = feed
            self._changed.notify_all()

    def withdraw(self, generation: int) -> None:
        """Stop sending the state and drop the reference to its memory, once all members have the state."""
        with self._changed:
            if self._offer.generation == generation:
                self._end_offer()

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):  # otherwise the accepting thread would accept one more connection
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._changed:
            self._end_offer()

    def _end_offer(self) -> None:
        self._offer.over = True
        if self._offer.feed is not None:
            self._offer.feed.end()
            self._offer.feed = None
        self._changed.notify_all()

    def _accept_connections(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if self._closed:
                    return
                log.warning("cannot send the state to other workers at present: %s", error)
                time.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            if not self._free.acquire(blocking=False):
                connection.close()  # a refused client tries again
                continue
            sender_thread = threading.Thread(
                target=self._serve_and_close, args=(connection,), name="state-sender", daemon=True
            )
            try:
                sender_thread.start()
            except RuntimeError as error:  # no more threads can be started
                log.warning("cannot send the state to other workers at present: %s", error)
                self._free.release()
                connection.close()

    def _serve_and_close(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(REQUEST_SECONDS)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._serve_request(connection)
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.info("a transfer of the state ended early: %s", error)
        finally:
            self._free.release()

    def _serve_request(self, connection: socket.socket) -> None:
        request = json.loads(_receive_line(connection))
        generation, client_salt = int(request["generation"]), bytes.fromhex(request["salt"])
        origin, first_chunk = request["origin"], int(request["first"])
        offer = self._offer_of(generation)
        received_proof = str(request["proof"])
        if offer is None or not hmac.compare_digest(
            proof(offer.token, generation, request["salt"]).encode(), received_proof.encode()
        ):
            log.warning("refused a request for the state of generation %d", generation)
            return
        connection.settimeout(STALL_SECONDS)
        own_salt = os.urandom(SALT_BYTES)
        connection.sendall(own_salt)
        connection_seal = seal(offer.token, client_salt + own_salt, offer.clear)
        if (feed := self._feed_of(offer, connection)) is not None:
            first_chunk = first_chunk if origin == feed.origin and 0 <= first_chunk <= feed.chunks else 0
            first_message = {"size": len(feed.block), "chunk": feed.chunk, "origin": feed.origin, "first": first_chunk}
            send_words(connection, connection_seal, first_message)
            _send_chunks(connection, connection_seal, feed, first_chunk)

    def _offer_of(self, generation: int) -> _StateOffer | None:
        """Return the offer of the state for a generation.

        Returns None if the generation is over, or if this worker is not ordered to form the generation within
        `REQUEST_SECONDS`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._offer.generation >= generation, REQUEST_SECONDS)
            return self._offer if self._offer.generation == generation and not self._offer.over else None

    def _feed_of(self, offer: _StateOffer, connection: socket.socket) -> Feed | None:
        """Wait until this worker has a feed for the offer, and return the feed.

        While waiting, send signs of life to the client.

        Returns None if the offer was withdrawn.
        """
        while True:
            with self._changed:
                self._changed.wait_for(lambda: offer.feed is not None or offer.over, SIGN_OF_LIFE_SECONDS)
                if offer.feed is not None or offer.over:
                    return offer.feed
            send_sign_of_life(connection)


def _send_chunks(connection: socket.socket, connection_seal: Seal, feed: Feed, first_chunk: int) -> None:
    for chunk_number in range(first_chunk, feed.chunks + 1):
        while not feed.wait(chunk_number, SIGN_OF_LIFE_SECONDS):
            send_sign_of_life(connection)
        if chunk_number < feed.ready:
            send(connection, connection_seal, FrameKind.CHUNK, feed.part(chunk_number))
        elif chunk_number == feed.chunks and feed.name is not None:
            send_words(connection, connection_seal, {"name": feed.name})
        else:
            return  # the feed is void


def _receive_line(connection: socket.socket) -> bytes:
    """Return the request. Raises OSError if the request does not arrive within `REQUEST_SECONDS`, or is too long."""
    deadline, request_line = time.monotonic() + REQUEST_SECONDS, b""
    while not request_line.endswith(b"\n"):
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        received_part = connection.recv(MAX_WORDS_BYTES)
        request_line += received_part
        if not received_part or len(request_line) > MAX_WORDS_BYTES:
            raise OSError("no request arrived")
    return request_line
