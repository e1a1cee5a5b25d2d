"""A worker's connection to its coordinator.

A separate thread reads the coordinator's messages. The training thread sends messages and waits for orders.

If the connection breaks, the worker tries to reconnect for at most `Clocks.patience` seconds, and repeats its last
unanswered message. A worker that the coordinator no longer knows gets the message `Refused` and exits, and its
supervisor starts a new worker.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from dyntrain.controller.contract.messages import ControlFile
from dyntrain.training.protocol.blocking import BlockingConnection, open_connection
from dyntrain.training.protocol.channel import answer_challenge, answer_seconds, decode, encode
from dyntrain.training.protocol.clocks import Clocks, spread
from dyntrain.training.protocol.messages import (
    Abort,
    Entered,
    LoopTerms,
    Pump,
    Refused,
    SafeCopy,
    StepVerdict,
    Where,
    WorkerHello,
)
from dyntrain.training.protocol.wire import FromCoordinator, FromWorker
from dyntrain.training.worker.membership.dialogue import Dialogue
from pydantic import ValidationError
from websockets.exceptions import WebSocketException

UrgentOrder = Abort | Pump | StepVerdict | Where
TEMPORARY_FAILURE = 75  # EX_TEMPFAIL of sysexits.h: the supervisor starts the worker again
CONTROL_FILE_VARIABLE = "DYNTRAIN_CONTROL_FILE"  # variable with the path of the control file
log = logging.getLogger(__name__)


class CoordinatorLost(RuntimeError):
    """The coordinator refused this worker or was unreachable for too long.

    The node's supervisor decides whether a new worker starts.
    """


def read_control_file() -> ControlFile | None:
    """Return the control file that the supervisor wrote for this worker, or None if no supervisor started the script.

    Raises OSError if the file cannot be read, and ValueError if the file is damaged.
    """
    path = os.environ.get(CONTROL_FILE_VARIABLE)
    return ControlFile.model_validate_json(Path(path).read_text()) if path else None


OWN_RANDOM = random.SystemRandom()  # not `random`: a draw from the global generator would change the script's draws


class CoordinatorClient:
    """A worker's connection to the coordinator. A reading thread restores a broken connection.

    `urgent` is called on the reading thread with each order that must not wait for the training thread. `safe` is
    called at each new connection, and returns this node's newest safe state. If `clocks` is None, the time limits of
    the control file are used.
    """

    def __init__(
        self,
        control: ControlFile,
        hello: WorkerHello,
        urgent: Callable[[UrgentOrder], None],
        clocks: Clocks | None = None,
        end: Callable[[int], None] = os._exit,
        safe: Callable[[], SafeCopy | None] = lambda: None,
    ) -> None:
        self._end = end
        self._control, self._hello, self._urgent, self._safe = control, hello, urgent, safe
        self._clocks = clocks or Clocks(control.liveness_seconds, control.progress_seconds)
        self._orders: queue.Queue[FromCoordinator | BaseException] = queue.Queue()
        self._lock = threading.Lock()  # of the dialogue and of writing: sent and received messages have one order
        self._dialogue = Dialogue()
        self._connection: BlockingConnection | None = None
        self._closed = False
        self._done = threading.Event()
        threading.Thread(target=self._run_connections, name="coordinator", daemon=True).start()

    def say(self, message: FromWorker, awaits_answer: bool = False) -> None:
        """Send a message. Without a connection, a message that awaits no answer is dropped."""
        with self._lock:
            if awaits_answer:
                self._dialogue.sent(message)
            if self._connection is not None:
                with contextlib.suppress(
                    WebSocketException, OSError
                ):  # the reading thread gets the same error, and reconnects
                    self._connection.send(encode(message))

    def enter(self, terms: LoopTerms, generation: int | None) -> None:
        """Report that the script begins another loop over epochs.

        On each later connection, the worker's hello message contains `terms`.
        """
        with self._lock:
            self._hello = self._hello.model_copy(update=dict(terms))
        self.say(Entered(generation=generation, **dict(terms)), awaits_answer=True)

    def next_order(self, timeout_seconds: float | None = None) -> FromCoordinator:
        """Wait for the coordinator's next order. Raises CoordinatorLost, or TimeoutError after `timeout_seconds`."""
        try:
            order = self._orders.get(timeout=timeout_seconds)
        except queue.Empty:
            raise TimeoutError(f"no order from the coordinator within {timeout_seconds} s") from None
        if isinstance(order, BaseException):
            raise order
        return order

    @property
    def has_order(self) -> bool:
        """Whether `next_order` returns or raises an error at once, without waiting."""
        return not self._orders.empty()

    def close(self) -> None:
        self._closed = True
        self._done.set()
        with self._lock:
            if self._connection is not None:
                with contextlib.suppress(WebSocketException, OSError):
                    self._connection.close()

    def _run_connections(self) -> None:
        try:
            self._keep_connected()
        # handed to the training thread, which otherwise would not notice that this thread has ended
        except BaseException as error:  # noqa: BLE001
            self._orders.put(error)
        self._end_if_blocked()

    def _keep_connected(self) -> None:
        down_since, delay_seconds = time.monotonic(), 0.1
        while not self._closed:
            try:
                # a restarted coordinator has another address and token
                self._control = read_control_file() or self._control
                seconds_left = down_since + self._clocks.patience - time.monotonic()
                with open_connection(
                    self._control.url, self._control.certificate, self._clocks, max(1.0, seconds_left)
                ) as connection:
                    try:
                        self._listen(connection)
                    finally:
                        with self._lock:
                            self._connection = None
                        # patience counts from the end of the last connection
                        down_since, delay_seconds = time.monotonic(), 0.1
            except ValidationError as error:  # the error's text would contain the message and its tokens
                log.warning("coordinator at %s: it sent a message that is no valid %s", self._control.url, error.title)
            except (WebSocketException, OSError, ValueError) as error:
                log.info("coordinator at %s: %s", self._control.url, error)
            if time.monotonic() - down_since > self._clocks.patience:
                raise CoordinatorLost(
                    f"the coordinator at {self._control.url} was unreachable for {self._clocks.patience:.0f} s"
                )
            self._done.wait(
                spread(delay_seconds, OWN_RANDOM.random(), 0.5)
            )  # spread, as all workers of the job reconnect at once
            delay_seconds = min(2.0, delay_seconds * 2)

    def _listen(self, connection: BlockingConnection) -> None:
        """Send the hello message, directly followed by the unanswered message, if any. Then receive orders."""
        challenge, safe_copy = connection.recv(answer_seconds(self._clocks)), self._safe()
        with self._lock:
            if self._closed:
                return
            hello = self._hello.model_copy(
                update={**self._dialogue.hello_fields(), "identity": self._control.identity, "safe": safe_copy}
            )
            connection.send(encode(answer_challenge(challenge, hello, self._control.token)))
            if self._dialogue.pending is not None:
                connection.send(encode(self._dialogue.pending))
            self._connection = connection
        for order_text in connection:
            self._take_order(decode(order_text))

    def _end_if_blocked(self) -> None:
        """Exit the process if the training thread does not call `close` within `Clocks.exit_limit` seconds.

        A training thread that is blocked in ps-lite never calls `next_order`, so the process would wait for ever.
        """
        if not self._done.wait(self._clocks.exit_limit):
            log.error("the coordinator has given this worker up and the training thread is blocked: the process ends")
            self._end(TEMPORARY_FAILURE)

    def _take_order(self, order: FromCoordinator) -> None:
        if isinstance(order, Refused):
            self._closed = True
            raise CoordinatorLost(order.reason)
        with self._lock:
            is_new_order = self._dialogue.accept(order)
        if not is_new_order:
            log.info("ignored a repeated or outdated order: %s", order.type)
        elif isinstance(order, UrgentOrder):
            self._urgent(order)
        else:
            self._orders.put(order)
