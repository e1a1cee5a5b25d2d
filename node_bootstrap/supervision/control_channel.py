"""The node's side of the control channel: connects the prepared node to the coordinator, and receives its orders.

The channel may be down at any time, for any length of time. So no message is queued for later. After each welcome (the
coordinator's first message), the receiver sends the node's whole current state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Protocol

from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.node_bootstrap.reports.config import Access
from dyntrain.training.protocol.channel import answer_seconds, connect, decode, encode, greet
from dyntrain.training.protocol.clocks import DEFAULT, Clocks, spread
from dyntrain.training.protocol.messages import Refused
from dyntrain.training.protocol.node_messages import NodeHello, Welcome
from dyntrain.training.protocol.wire import FromCoordinator, FromNode
from dyntrain.training.timeouts import timeout
from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException

CLOSE_SECONDS = 1.0
log = logging.getLogger(__name__)


class Receiver(Protocol):
    """Handler of the coordinator's messages."""

    def hello(self) -> NodeHello:
        """Return the first message of each connection, from the current state."""
        ...

    async def on_welcome(self, access: Access, welcome: Welcome) -> None:
        """Send the coordinator the current state over a new connection."""
        ...

    async def on_message(self, message: FromCoordinator) -> None: ...

    def on_disconnect(self) -> None:
        """Handle the end of a connection over which a welcome had come."""
        ...


class Ending(Enum):
    """Why a connection ended."""

    CLOSED = "the connection to the coordinator is closed"
    REFUSED = "the coordinator refused this node"
    FAILED = "no connection to the coordinator"


class ControlChannel:
    """Keeps a connection to the coordinator.

    `access` returns the coordinator's address and token, None while none are published; raises ServiceUnavailable.
    """

    def __init__(
        self, cluster: str, access: Callable[[], Awaitable[Access | None]], timing: Timing, clocks: Clocks = DEFAULT
    ) -> None:
        self._cluster, self._access, self._timing, self._clocks = cluster, access, timing, clocks
        self._outbox: asyncio.Queue[FromNode | None] | None = None
        self._last_message = ""
        self._leaving = False

    @property
    def connected(self) -> bool:
        return self._outbox is not None

    def send(self, message: FromNode) -> bool:
        """Queue a message on the current connection; returns False, and drops the message, without a connection."""
        if self._outbox is None:
            return False
        self._outbox.put_nowait(message)
        return True

    def end_connection(self) -> None:
        """End the current connection. A new connection follows as usual."""
        if self._outbox is not None:
            self._outbox.put_nowait(None)

    def leave(self) -> None:
        """End the connection, and make no new one."""
        self._leaving = True
        self.end_connection()

    async def run(self, receiver: Receiver) -> None:
        """Connect, and reconnect, until cancelled or `leave` is called.

        A new coordinator publishes another address and token. A node that cannot reach the old coordinator, or is
        refused by it, reads address and token again.
        """
        failures = refusals = 0
        access: Access | None = None
        while not self._leaving:
            access = access or await self._wait_for_access()
            try:
                ending = await self._run_connection(access, receiver)
            except (OSError, TimeoutError, ValueError, WebSocketException) as error:
                # ValueError: an invalid certificate or address, published by a broken coordinator
                ending = Ending.FAILED
                self._warn(f"{ending.value}: {type(error).__name__}: {error}", access.endpoint.url)
            access = access if ending is Ending.CLOSED else None
            failures = failures + 1 if ending is Ending.FAILED else 0
            refusals = refusals + 1 if ending is Ending.REFUSED else 0
            pause = (
                self._timing.refused.delay(refusals - 1)
                if refusals
                else self._timing.endpoint.delay(max(0, failures - 1))
            )
            await asyncio.sleep(spread(pause, random.random()))

    async def _wait_for_access(self) -> Access:
        tries = 0
        while True:
            try:
                if access := await self._access():
                    return access
                self._warn(f"no coordinator of cluster {self._cluster} has published its address yet")
            except ServiceUnavailable as error:
                self._warn(str(error))
            await asyncio.sleep(spread(self._timing.endpoint.delay(tries), random.random()))
            tries += 1

    async def _run_connection(self, access: Access, receiver: Receiver) -> Ending:
        connection = await connect(access.endpoint.url, access.endpoint.certificate, self._clocks)
        sender: asyncio.Task[None] | None = None
        try:
            await greet(connection, receiver.hello(), access.token, self._clocks)
            async with timeout(answer_seconds(self._clocks)):
                first = self._decode(await connection.recv())
            if isinstance(first, Refused):
                return self._refused(first)
            if not isinstance(first, Welcome):
                self._warn(
                    f"the coordinator answered the hello with {first.type if first else 'something unknown'}",
                    access.endpoint.url,
                )
                return Ending.FAILED
            self._last_message = ""
            log.info("connected to the coordinator", extra={"job": first.job, "url": access.endpoint.url})
            self._outbox = asyncio.Queue()
            sender = asyncio.create_task(_send(connection, self._outbox))
            await receiver.on_welcome(access, first)
            return await self._listen(connection, receiver)
        finally:
            if self._outbox is not None:
                self._outbox = None
                receiver.on_disconnect()
            if sender is not None:
                sender.cancel()
            with contextlib.suppress(TimeoutError, OSError, WebSocketException):
                async with timeout(CLOSE_SECONDS):
                    await connection.close()

    async def _listen(self, connection: ClientConnection, receiver: Receiver) -> Ending:
        try:
            async for text in connection:
                message = self._decode(text)
                if isinstance(message, Refused):
                    return self._refused(message)
                if message is not None:
                    await receiver.on_message(message)
        except ConnectionClosed as error:
            log.warning("connection to the coordinator lost", extra={"reason": str(error)})
        else:
            log.info(Ending.CLOSED.value)
        return Ending.CLOSED

    def _decode(self, text: str | bytes) -> FromCoordinator | None:
        """Decode a message; None for a message that this version does not know."""
        try:
            return decode(text)
        except ValidationError as error:
            log.warning(
                "ignored a message of the coordinator", extra={"reason": error.title, "errors": error.error_count()}
            )
            return None

    def _refused(self, message: Refused) -> Ending:
        self._warn(f"{Ending.REFUSED.value}: {message.reason}")
        return Ending.REFUSED

    def _warn(self, text: str, url: str = "") -> None:
        """Log a warning, but not twice in a row: errors are repeated while the coordinator is away."""
        if text != self._last_message:
            self._last_message = text
            log.warning(text, extra={"url": url} if url else {})


async def _send(connection: ClientConnection, outbox: asyncio.Queue[FromNode | None]) -> None:
    with contextlib.suppress(ConnectionClosed):  # the listener logs it
        while (message := await outbox.get()) is not None:
            await connection.send(encode(message))
        await connection.close()
