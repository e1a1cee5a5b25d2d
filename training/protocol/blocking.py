"""The coordinator's connection for threads, of which a worker has several that speak and one that listens.

An event loop in a thread of its own owns it. OpenSSL forbids that one thread reads from a TLS session while another
writes to it (https://github.com/openssl/openssl/issues/20446), and websockets' own connection for threads does just
that: now and then a ticket that arrives while the first request is written leaves both sides waiting for ever.
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
    """Any thread but the loop's own may use it while the loop runs. What is raised is what `connection` raises."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        self.connection = connection
        self._loop = loop

    def send(self, text: str) -> None:
        """Ended, at the latest, by the pings, which close a connection whose other side takes nothing."""
        self._done(self.connection.send(text))

    def recv(self, seconds: float | None = None) -> str | bytes:
        """The next message. Raises TimeoutError after `seconds`; nothing is lost by it."""
        return self._done(asyncio.wait_for(self.connection.recv(), seconds))

    def __iter__(self) -> Iterator[str | bytes]:
        """Until the other side says farewell."""
        while True:
            try:
                yield self.recv()
            except ConnectionClosedOK:
                return

    def close(self) -> None:
        self._done(self.connection.close())

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextmanager
def connected(
    url: str, certificate: str, clocks: Clocks = DEFAULT, seconds: float = ANSWER_SECONDS
) -> Iterator[BlockingConnection]:
    """Raises as `channel.connect` does, within `seconds` if that is less. At its end nobody else may use it."""
    opened: Future[tuple[BlockingConnection, asyncio.Event]] = Future()

    async def own() -> None:
        async with timeout(seconds):
            connection = await connect(url, certificate, clocks)
        over = asyncio.Event()
        async with connection:
            opened.set_result((BlockingConnection(asyncio.get_running_loop(), connection), over))
            await over.wait()

    def run() -> None:
        work = own()
        try:
            asyncio.run(work)
        except BaseException as error:
            work.close()  # never begun, where there was not even a loop
            if opened.done():
                raise
            opened.set_exception(error)  # somebody waits

    thread = threading.Thread(target=run, name="line", daemon=True)
    thread.start()
    line, over = opened.result()
    try:
        yield line
    finally:
        line._loop.call_soon_threadsafe(over.set)
        thread.join()
