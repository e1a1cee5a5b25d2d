"""A blocking connection to the coordinator, for a worker's threads: several threads may send, one thread may receive.

The connection belongs to an event loop that runs in a thread of its own. OpenSSL forbids that one thread reads from a
TLS session while another thread writes to the session (https://github.com/openssl/openssl/issues/20446). The blocking
connection of the package `websockets` reads and writes in two threads, so that connection is not used here: client and
server may wait for ever if a TLS session ticket arrives while the first request is written.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from dyntrain.training.protocol.channel import ANSWER_SECONDS, connect
from dyntrain.training.protocol.clocks import DEFAULT, Clocks
from dyntrain.training.timeouts import timeout
from websockets.asyncio.connection import Connection
from websockets.exceptions import ConnectionClosedOK

T = TypeVar("T")


class BlockingConnection:
    """A connection that all threads except the event loop's may use, while the loop runs.

    All methods raise the errors of the wrapped `connection`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        self.connection = connection
        self._loop = loop

    def send(self, text: str) -> None:
        """Send a message.

        Sending cannot block for ever, as unanswered pings close a connection whose peer reads nothing.
        """
        self._run(self.connection.send(text))

    def recv(self, seconds: float | None = None) -> str | bytes:
        """Return the next message from the coordinator.

        Raises TimeoutError after `seconds`; no message is lost by the timeout.
        """
        return self._run(asyncio.wait_for(self.connection.recv(), seconds))

    def __iter__(self) -> Iterator[str | bytes]:
        """Yield messages until the peer closes the connection."""
        while True:
            try:
                yield self.recv()
            except ConnectionClosedOK:
                return

    def close(self) -> None:
        self._run(self.connection.close())

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


@contextmanager
def open_connection(
    url: str, certificate: str, clocks: Clocks = DEFAULT, seconds: float = ANSWER_SECONDS
) -> Iterator[BlockingConnection]:
    """Connect within `seconds`.

    Raises as `channel.connect`. No thread may use the connection after the `with` block.
    """
    future: Future[tuple[BlockingConnection, asyncio.Event]] = Future()

    async def hold_connection() -> None:
        async with timeout(seconds):
            connection = await connect(url, certificate, clocks)
        close_event = asyncio.Event()
        async with connection:
            future.set_result((BlockingConnection(asyncio.get_running_loop(), connection), close_event))
            await close_event.wait()

    def run_event_loop() -> None:
        coroutine = hold_connection()
        try:
            asyncio.run(coroutine)
        except BaseException as error:
            coroutine.close()  # prevents a warning if no event loop could be made
            if future.done():
                raise
            future.set_exception(error)  # ends the caller's wait

    thread = threading.Thread(target=run_event_loop, name="line", daemon=True)
    thread.start()
    blocking_connection, close_event = future.result()
    try:
        yield blocking_connection
    finally:
        blocking_connection._loop.call_soon_threadsafe(close_event.set)
        thread.join()
