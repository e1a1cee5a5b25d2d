"""Connects a prepared node to the coordinator, and receives the coordinator's orders.

The connection may be lost at any time, for any length of time, so no message is kept for a later connection. After each
welcome (the coordinator's first message on a connection), the receiver sends the node's whole current state.
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

CLOSE_SECONDS = 1.0  # time limit for closing a connection
log = logging.getLogger(__name__)


class MessageReceiver(Protocol):
    """Handles the coordinator's messages."""

    def hello(self) -> NodeHello:
        """Return the first message that the node sends on each connection, which describes the node's current state."""
        ...

    async def on_welcome(self, access: Access, welcome: Welcome) -> None:
        """Send the node's current state to the coordinator, over a new connection."""
        ...

    async def on_message(self, message: FromCoordinator) -> None:
        """Carry out the coordinator's order `message`."""
        ...

    def on_disconnect(self) -> None:
        """Called when a connection that the coordinator had welcomed has ended."""
        ...


class ConnectionEnd(Enum):
    """Why a connection to the coordinator ended."""

    CLOSED = "the connection to the coordinator is closed"
    REFUSED = "the coordinator refused this node"
    FAILED = "no connection to the coordinator"


class ControlChannel:
    """Keeps the node connected to the coordinator.

    `access` returns the coordinator's address and token, or None while no coordinator has published them. `access`
    raises ServiceUnavailable if AWS fails.
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
        """Send a message over the current connection; without a connection, drops the message and returns False."""
        if self._outbox is None:
            return False
        self._outbox.put_nowait(message)
        return True

    def end_connection(self) -> None:
        """Close the current connection to the coordinator, after which `run` makes a new connection."""
        if self._outbox is not None:
            self._outbox.put_nowait(None)

    def leave(self) -> None:
        """Close the current connection to the coordinator, and make `run` return."""
        self._leaving = True
        self.end_connection()

    async def run(self, receiver: MessageReceiver) -> None:
        """Connect to the coordinator, and reconnect whenever the connection ends, until cancelled or `leave` is called.

        A new coordinator publishes another address and token. A node that cannot reach the coordinator, or that the
        coordinator refuses, therefore reads the published address and token again.
        """
        failed_tries = refusals = 0
        access: Access | None = None
        while not self._leaving:
            access = access or await self._wait_for_access()
            try:
                connection_end = await self._run_connection(access, receiver)
            except (OSError, TimeoutError, ValueError, WebSocketException) as error:
                # ValueError: an invalid certificate or address, published by a broken coordinator
                connection_end = ConnectionEnd.FAILED
                self._warn_once(f"{connection_end.value}: {type(error).__name__}: {error}", access.endpoint.url)
            access = access if connection_end is ConnectionEnd.CLOSED else None
            failed_tries = failed_tries + 1 if connection_end is ConnectionEnd.FAILED else 0
            refusals = refusals + 1 if connection_end is ConnectionEnd.REFUSED else 0
            pause_seconds = (
                self._timing.refusal_backoff.delay(refusals - 1)
                if refusals
                else self._timing.connection_backoff.delay(max(0, failed_tries - 1))
            )
            await asyncio.sleep(spread(pause_seconds, random.random()))

    async def _wait_for_access(self) -> Access:
        failed_tries = 0
        while True:
            try:
                if access := await self._access():
                    return access
                self._warn_once(f"no coordinator of cluster {self._cluster} has published its address yet")
            except ServiceUnavailable as error:
                self._warn_once(str(error))
            await asyncio.sleep(spread(self._timing.connection_backoff.delay(failed_tries), random.random()))
            failed_tries += 1

    async def _run_connection(self, access: Access, receiver: MessageReceiver) -> ConnectionEnd:
        connection = await connect(access.endpoint.url, access.endpoint.certificate, self._clocks)
        sending_task: asyncio.Task[None] | None = None
        try:
            await greet(connection, receiver.hello(), access.token, self._clocks)
            async with timeout(answer_seconds(self._clocks)):
                first_message = self._decode(await connection.recv())
            if isinstance(first_message, Refused):
                return self._warn_of_refusal(first_message)
            if not isinstance(first_message, Welcome):
                answer_type = first_message.type if first_message else "something unknown"
                self._warn_once(f"the coordinator answered the hello with {answer_type}", access.endpoint.url)
                return ConnectionEnd.FAILED
            self._last_message = ""
            log.info("connected to the coordinator", extra={"job": first_message.job, "url": access.endpoint.url})
            self._outbox = asyncio.Queue()
            sending_task = asyncio.create_task(_send_queued_messages(connection, self._outbox))
            await receiver.on_welcome(access, first_message)
            return await self._receive_messages(connection, receiver)
        finally:
            if self._outbox is not None:
                self._outbox = None
                receiver.on_disconnect()
            if sending_task is not None:
                sending_task.cancel()
            with contextlib.suppress(TimeoutError, OSError, WebSocketException):
                async with timeout(CLOSE_SECONDS):
                    await connection.close()

    async def _receive_messages(self, connection: ClientConnection, receiver: MessageReceiver) -> ConnectionEnd:
        try:
            async for received_text in connection:
                message = self._decode(received_text)
                if isinstance(message, Refused):
                    return self._warn_of_refusal(message)
                if message is not None:
                    await receiver.on_message(message)
        except ConnectionClosed as error:
            log.warning("connection to the coordinator lost", extra={"reason": str(error)})
        else:
            log.info(ConnectionEnd.CLOSED.value)
        return ConnectionEnd.CLOSED

    def _decode(self, text: str | bytes) -> FromCoordinator | None:
        """Decode a message of the coordinator; returns None if this version of dyntrain does not know the message."""
        try:
            return decode(text)
        except ValidationError as error:
            log.warning(
                "ignored a message of the coordinator", extra={"reason": error.title, "errors": error.error_count()}
            )
            return None

    def _warn_of_refusal(self, message: Refused) -> ConnectionEnd:
        self._warn_once(f"{ConnectionEnd.REFUSED.value}: {message.reason}")
        return ConnectionEnd.REFUSED

    def _warn_once(self, text: str, url: str = "") -> None:
        """Log a warning, but not the same text twice in a row, since errors recur while there is no coordinator."""
        if text != self._last_message:
            self._last_message = text
            log.warning(text, extra={"url": url} if url else {})


async def _send_queued_messages(connection: ClientConnection, outbox: asyncio.Queue[FromNode | None]) -> None:
    with contextlib.suppress(ConnectionClosed):  # the listener logs it
        while (message := await outbox.get()) is not None:
            await connection.send(encode(message))
        await connection.close()
