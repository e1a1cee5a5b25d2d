"""Carries out the session's orders in sequence.

Orders that follow a decision wait until the decision is written to the shared volume. A single thread makes all writes
to the volume, in sequence. So while a write blocks, which may take minutes on NFS, the event loop still answers pings.
Meanwhile workers train on to the next point where the membership may change. No order is sent while a write of a
decision blocks, so all deadlines are extended by the duration of the write (`is_stalled`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future

from dyntrain.training.events import Event
from dyntrain.training.journal import Entry
from dyntrain.training.session.orders import Journal, Order

NOTICEABLE_SECONDS = 5.0  # duration after which a stall of the volume is logged
log = logging.getLogger("coordinator")


class Outbox:
    """The queue of orders that are not carried out yet.

    The thread `volume` runs one call at a time: `decide` writes decisions to the volume, and `announce` writes events.
    The function `carry` carries out all orders that are not decisions, on the event loop.
    """

    def __init__(
        self,
        volume: Executor,
        decide: Callable[[Entry], None],
        announce: Callable[[Event], None],
        carry: Callable[[Order], None],
    ) -> None:
        self._volume, self._decide, self._announce, self._carry = volume, decide, announce, carry
        self._waiting: deque[Order] = deque()
        self._since: float | None = None  # when the present write began
        self._warned = False
        self._due = asyncio.Event()

    @property
    def is_stalled(self) -> bool:
        """Whether a decision is being written to the volume; during the write no order is sent."""
        if self._since is None:
            return bool(self._waiting)
        if not self._warned and (waited_seconds := time.monotonic() - self._since) > NOTICEABLE_SECONDS:
            self._warned = True
            log.warning(
                "a write to the volume has taken %.0f s so far; workers train on, none counts as lost", waited_seconds
            )
        return True

    def put(self, orders: list[Order]) -> None:
        self._waiting.extend(orders)
        if self._since is None:
            self._carry_out_orders()

    def drop_orders(self) -> None:
        """Drop all waiting orders, because another coordinator has taken the job over."""
        self._waiting.clear()

    async def run(self) -> None:
        """Write decisions to the volume until this task is cancelled. Raises the errors of `decide`."""
        loop = asyncio.get_running_loop()
        while True:
            await self._due.wait()
            self._due.clear()
            while self._waiting and isinstance(decision := self._waiting[0], Journal):
                self._waiting.popleft()
                self._since, self._warned = time.monotonic(), False
                try:
                    await loop.run_in_executor(self._volume, self._decide, decision.entry)
                finally:
                    if self._warned:
                        log.warning("the volume is back after %.0f s", time.monotonic() - self._since)
                    self._since = None
                self._carry_out_orders()

    def write_event(self, event: Event) -> None:
        """Have an event written to the volume after all earlier writes, and return without waiting."""
        self._volume.submit(self._announce, event).add_done_callback(_log_failure)

    def _carry_out_orders(self) -> None:
        """Carry out all waiting orders up to the next decision, which must first be written to the volume."""
        while self._waiting and not isinstance(self._waiting[0], Journal):
            self._carry(self._waiting.popleft())
        if self._waiting:
            self._due.set()


def _log_failure(write_future: Future[None]) -> None:
    if error := write_future.exception():
        log.error("an event could not be written: %s", error)
