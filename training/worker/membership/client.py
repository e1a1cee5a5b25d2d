"""A worker's line to its coordinator: one thread reads, the training thread writes and waits for orders with a bound.

The connection may drop while the worker trains; it is made again, and what was said last is said again, until the
worker's patience has passed (`Clocks`). A worker that the coordinator no longer knows is told so (`Refused`) and ends:
its supervisor starts a fresh one.
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
from dyntrain.training.protocol.blocking import BlockingConnection, connected
from dyntrain.training.protocol.channel import answer, answer_seconds, decode, encode
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

Urgent = Abort | Pump | StepVerdict | Where
TEMPORARY_FAILURE = 75  # of sysexits.h: start me again
CONTROL_FILE_VARIABLE = "DYNTRAIN_CONTROL_FILE"
log = logging.getLogger(__name__)


class CoordinatorLost(RuntimeError):
    """The coordinator refused this worker, or could not be reached for too long. The supervisor decides what next."""


def read_control_file() -> ControlFile | None:
    """What the supervisor wrote for this worker; None when the script was started alone. Raises OSError or ValueError
    when it is damaged.
    """
    path = os.environ.get(CONTROL_FILE_VARIABLE)
    return ControlFile.model_validate_json(Path(path).read_text()) if path else None


OWN = random.SystemRandom()  # `random` is the script's: after a draw here its own would be others


class CoordinatorClient:
    """`urgent` takes, on the reading thread, the orders that must not wait for the training thread. `safe` is asked at
    each (re)connection. `clocks`: None: those of the control file.
    """

    def __init__(
        self,
        control: ControlFile,
        hello: WorkerHello,
        urgent: Callable[[Urgent], None],
        clocks: Clocks | None = None,
        end: Callable[[int], None] = os._exit,
        safe: Callable[[], SafeCopy | None] = lambda: None,
    ) -> None:
        self._end = end
        self._control, self._hello, self._urgent, self._safe = control, hello, urgent, safe
        self._clocks = clocks or Clocks(control.liveness_seconds, control.progress_seconds)
        self._orders: queue.Queue[FromCoordinator | BaseException] = queue.Queue()
        self._lock = threading.Lock()  # of the dialogue and of writing: what was said and what was heard have one order
        self._dialogue = Dialogue()
        self._connection: BlockingConnection | None = None
        self._closed = False
        self._done = threading.Event()
        threading.Thread(target=self._run, name="coordinator", daemon=True).start()

    def say(self, message: FromWorker, awaits_answer: bool = False) -> None:
        """Sends, or drops what awaits no answer while the connection is down."""
        with self._lock:
            if awaits_answer:
                self._dialogue.sent(message)
            if self._connection is not None:
                with contextlib.suppress(WebSocketException, OSError):  # the reader sees it too, and connects again
                    self._connection.send(encode(message))

    def enter(self, terms: LoopTerms, generation: int | None) -> None:
        """The script has come to another loop over epochs; a later connection is made on these terms, too."""
        with self._lock:
            self._hello = self._hello.model_copy(update=dict(terms))
        self.say(Entered(generation=generation, **dict(terms)), awaits_answer=True)

    def order(self, seconds: float | None = None) -> FromCoordinator:
        """The next order. Raises CoordinatorLost, or TimeoutError after `seconds`."""
        try:
            order = self._orders.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"no order from the coordinator within {seconds} s") from None
        if isinstance(order, BaseException):
            raise order
        return order

    @property
    def has_order(self) -> bool:
        """Whether `order` would return, or raise, at once."""
        return not self._orders.empty()

    def close(self) -> None:
        self._closed = True
        self._done.set()
        with self._lock:
            if self._connection is not None:
                with contextlib.suppress(WebSocketException, OSError):
                    self._connection.close()

    def _run(self) -> None:
        try:
            self._converse()
        # handed to the training thread: nobody else would see that this one has ended
        except BaseException as error:  # noqa: BLE001
            self._orders.put(error)
        self._end_if_blocked()

    def _converse(self) -> None:
        down_since, delay = time.monotonic(), 0.1
        while not self._closed:
            try:
                # a coordinator that came back has another address and token
                self._control = read_control_file() or self._control
                left = down_since + self._clocks.patience - time.monotonic()
                with connected(self._control.url, self._control.certificate, self._clocks, max(1.0, left)) as line:
                    try:
                        self._listen(line)
                    finally:
                        with self._lock:
                            self._connection = None
                        # the time without a connection begins when the last one ended
                        down_since, delay = time.monotonic(), 0.1
            except ValidationError as error:  # its text would quote the message, and tokens with it
                log.warning("coordinator at %s: it sent something that is no %s", self._control.url, error.title)
            except (WebSocketException, OSError, ValueError) as error:
                log.info("coordinator at %s: %s", self._control.url, error)
            if time.monotonic() - down_since > self._clocks.patience:
                raise CoordinatorLost(f"no coordinator at {self._control.url} for {self._clocks.patience:.0f} s")
            self._done.wait(spread(delay, OWN.random(), 0.5))  # all others of the job come back as well
            delay = min(2.0, delay * 2)

    def _listen(self, line: BlockingConnection) -> None:
        """Greets, and says again what was not answered; nothing else can be said in between."""
        challenge, safe = line.recv(answer_seconds(self._clocks)), self._safe()
        with self._lock:
            if self._closed:
                return
            hello = self._hello.model_copy(
                update={**self._dialogue.where(), "identity": self._control.identity, "safe": safe}
            )
            line.send(encode(answer(challenge, hello, self._control.token)))
            if self._dialogue.pending is not None:
                line.send(encode(self._dialogue.pending))
            self._connection = line
        for text in line:
            self._take(decode(text))

    def _end_if_blocked(self) -> None:
        """A training thread inside ps-lite never looks at its orders: without this the process would wait there for
        ever.
        """
        if not self._done.wait(self._clocks.blocked):
            log.error("the coordinator has given this worker up and the training thread is blocked: the process ends")
            self._end(TEMPORARY_FAILURE)

    def _take(self, order: FromCoordinator) -> None:
        if isinstance(order, Refused):
            self._closed = True
            raise CoordinatorLost(order.reason)
        with self._lock:
            news = self._dialogue.hears(order)
        if not news:
            log.info("heard twice, or too late: %s", order.type)
        elif isinstance(order, Urgent):
            self._urgent(order)
        else:
            self._orders.put(order)
