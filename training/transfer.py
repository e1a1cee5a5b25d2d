"""How a joiner gets the state: it connects to the survivor that the coordinator named and reads one checksummed block.

Request: one JSON line {generation, token}. Answer: 8 bytes big-endian length, the block, its checksum (`training.block`); a closed connection
instead means refused. The token is fresh for each generation and reaches both sides over the authenticated control channel.
"""

from __future__ import annotations

import hmac
import json
import logging
import socket
import threading
import time
from dataclasses import dataclass

from training.block import CHECKSUM_BYTES, allocate, checksum

MAX_REQUEST = 4096
log = logging.getLogger(__name__)


class TransferError(RuntimeError):
    """The state could not be fetched whole within the time."""


@dataclass(frozen=True)
class _Offer:
    generation: int
    token: str
    block: memoryview


class StateServer:
    """Hands the offered block to whoever has its token. Threads are daemons: they end with the worker process."""

    def __init__(self, host: str, wait_seconds: float = 60.0) -> None:
        self._wait = wait_seconds
        self._changed = threading.Condition()
        self._offer: _Offer | None = None
        self._served = 0
        self._socket = socket.create_server((host, 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, name="state-server", daemon=True).start()

    def offer(self, generation: int, token: str, block: memoryview) -> None:
        with self._changed:
            self._offer, self._served = _Offer(generation, token, block), 0
            self._changed.notify_all()

    def withdraw(self, receivers: int, seconds: float) -> None:
        """Free the block once `receivers` have it, at the latest after `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self._served >= receivers, seconds)
            self._offer = None

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(self._wait)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # the checksum is a small packet after large ones
            try:
                request = json.loads(connection.makefile("rb").readline(MAX_REQUEST))
                generation, token = int(request["generation"]), str(request["token"])
                with self._changed:
                    self._changed.wait_for(lambda: self._offer is not None and self._offer.generation >= generation, self._wait)
                    offer = self._offer
                if offer is None or offer.generation != generation or not hmac.compare_digest(offer.token, token):
                    log.warning("refused a request for the state of generation %s", generation)
                    return
                connection.sendall(len(offer.block).to_bytes(8, "big"))
                connection.sendall(offer.block)
                connection.sendall(checksum(offer.block))
                with self._changed:
                    self._served += 1
                    self._changed.notify_all()
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("state transfer ended early: %s", error)


def fetch(host: str, port: int, generation: int, token: str, seconds: float = 60.0) -> memoryview:
    """The block that `host` offers for `generation`. Raises TransferError."""
    deadline = time.monotonic() + seconds
    try:
        with socket.create_connection((host, port), timeout=seconds) as connection:
            connection.sendall(json.dumps({"generation": generation, "token": token}).encode() + b"\n")
            block = _receive(connection, int.from_bytes(_receive(connection, 8, deadline), "big"), deadline)
            found = bytes(_receive(connection, CHECKSUM_BYTES, deadline))
    except OSError as error:
        raise TransferError(f"state of generation {generation} from {host}:{port}: {error}") from error
    if checksum(block) != found:
        raise TransferError(f"state of generation {generation} from {host}:{port} arrived damaged")
    return block


def _receive(connection: socket.socket, size: int, deadline: float) -> memoryview:
    block, got = allocate(size), 0
    while got < size:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        count = connection.recv_into(block[got:])
        if count == 0:
            raise TransferError(f"the source closed the connection after {got} of {size} bytes")
        got += count
    return block
