"""A worker's line to its coordinator: one thread reads, the training thread writes and waits for orders with a bound.

The connection may drop while the worker trains; it is made again, and what was said last is said again, until `reconnect_seconds` have
passed. A worker that the coordinator no longer knows is told so (`Refused`) and ends: its supervisor starts a fresh one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection

from controller.contract import ControlFile
from training.channel import connect_sync, decode, encode, greet_sync
from training.protocol import Abort, FromCoordinator, FromWorker, Pump, Refused, Verdict, WorkerHello

Urgent = Abort | Pump | Verdict
BLOCKED_SECONDS = 10.0  # from the word that the worker is given up to its end, if it does not end by itself
TEMPORARY_FAILURE = 75  # of sysexits.h: start me again
CONTROL_FILE_VARIABLE = "DYNTRAIN_CONTROL_FILE"
log = logging.getLogger(__name__)


class CoordinatorLost(RuntimeError):
    """The coordinator refused this worker, or could not be reached for too long. The supervisor decides what next."""


def read_control_file() -> ControlFile | None:
    """What the supervisor wrote for this worker; None when the script was started alone. Raises OSError or ValueError when it is damaged."""
    path = os.environ.get(CONTROL_FILE_VARIABLE)
    return ControlFile.model_validate_json(Path(path).read_text()) if path else None


class CoordinatorClient:
    """`urgent` takes, on the reading thread, the orders that must not wait for the training thread."""

    def __init__(
        self,
        control: ControlFile,
        hello: WorkerHello,
        urgent: Callable[[Urgent], None],
        reconnect_seconds: float = 60.0,
        end: Callable[[int], None] = os._exit,
    ) -> None:
        self._end = end
        self._control, self._hello, self._urgent, self._reconnect_seconds = control, hello, urgent, reconnect_seconds
        self._orders: queue.Queue[FromCoordinator | CoordinatorLost] = queue.Queue()
        self._write = threading.Lock()
        self._connection: ClientConnection | None = None
        self._pending: FromWorker | None = None  # said, and not yet answered by an order
        self._closed = False
        self._done = threading.Event()
        self.generation: int | None = None
        threading.Thread(target=self._read, name="coordinator", daemon=True).start()

    def say(self, message: FromWorker, awaits_answer: bool = False) -> None:
        """Sends, or drops what awaits no answer while the connection is down."""
        with self._write:
            if awaits_answer:
                self._pending = message
            if self._connection is not None:
                with contextlib.suppress(WebSocketException, OSError):  # the reader sees it too, and connects again
                    self._connection.send(encode(message))

    def order(self, seconds: float | None = None) -> FromCoordinator:
        """The next order. Raises CoordinatorLost, or TimeoutError after `seconds`."""
        try:
            order = self._orders.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"no order from the coordinator within {seconds} s") from None
        if isinstance(order, CoordinatorLost):
            raise order
        return order

    def close(self) -> None:
        self._closed = True
        self._done.set()
        with self._write:
            if self._connection is not None:
                with contextlib.suppress(WebSocketException, OSError):
                    self._connection.close()

    def _read(self) -> None:
        down_since, delay = time.monotonic(), 0.1
        while not self._closed:
            try:
                self._control = read_control_file() or self._control  # a coordinator that came back has another address and token
                connection = connect_sync(self._control.url, self._control.certificate)
                self._greet(connection)
                try:
                    for text in connection:
                        self._take(decode(text))
                finally:
                    down_since, delay = time.monotonic(), 0.1  # the time without a connection begins when the last one ended
            except (WebSocketException, OSError, ValueError) as error:
                log.info("coordinator at %s: %s", self._control.url, error)
            with self._write:
                self._connection = None
            if time.monotonic() - down_since > self._reconnect_seconds:
                self._orders.put(CoordinatorLost(f"no coordinator at {self._control.url} for {self._reconnect_seconds:.0f} s"))
                break
            time.sleep(delay)
            delay = min(2.0, delay * 2)
        self._end_if_blocked()

    def _end_if_blocked(self) -> None:
        """A training thread inside ps-lite never looks at its orders: without this the process would wait there for ever."""
        if not self._done.wait(BLOCKED_SECONDS):
            log.error("the coordinator has given this worker up and the training thread is blocked: the process ends")
            self._end(TEMPORARY_FAILURE)

    def _greet(self, connection: ClientConnection) -> None:
        hello = self._hello.model_copy(update={"generation": self.generation, "identity": self._control.identity})
        greet_sync(connection, hello, self._control.token)
        with self._write:
            self._connection = connection
            if self._pending is not None and self.generation is not None:
                connection.send(encode(self._pending))

    def _take(self, order: FromCoordinator) -> None:
        if isinstance(order, Refused):
            self._closed = True
            self._orders.put(CoordinatorLost(order.reason))
            return
        if isinstance(order, Abort | Pump | Verdict):
            self._urgent(order)
            return
        self._pending = None
        self._orders.put(order)
