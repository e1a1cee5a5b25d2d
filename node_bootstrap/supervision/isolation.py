"""Stops the worker of a node without coordinator for too long, until the controller lets the node continue.

By then the other workers train without this worker, so its state is useless, and the instance may have been released.
`core.isolation` decides, and `Isolation` carries out the decision.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable

from dyntrain.node_bootstrap.core.isolation import IsolationAction, IsolationState, decide
from dyntrain.node_bootstrap.core.pacing import Backoff
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.training.timeouts import timeout

log = logging.getLogger(__name__)


class Isolation:
    """Starts and stops the worker. `begin` starts the worker of a job, and `stop` ends the worker.

    `on_stopped` reports the stop to the controller. `is_wanted` asks the controller whether the node may continue, and
    raises ServiceUnavailable without an answer.

    `stop` returns False if the node has given up the worker. The controller knows that, and would answer that the node
    may not continue. But the next coordinator may restart the worker, so the node then continues without asking the
    controller.
    """

    def __init__(
        self,
        begin: Callable[[str], Awaitable[None]],
        stop: Callable[[], Awaitable[bool]],
        is_wanted: Callable[[], Awaitable[bool]],
        on_stopped: Callable[[str], None],
        seconds: float,
        ask: Backoff,
    ) -> None:
        self._begin, self._stop, self._is_wanted, self._on_stopped = begin, stop, is_wanted, on_stopped
        self._seconds, self._ask = seconds, ask
        self._state = IsolationState()
        self._job: str | None = None  # job of the connected coordinator
        self._last_answer = ""
        self._changed = asyncio.Event()

    async def on_welcome(self, job: str) -> None:
        """Note the connection, and start the worker unless it was stopped."""
        self._job = job
        if self._state.stopped:
            self._state = IsolationState(stopped=True)
            self._changed.set()
        else:
            self._state = IsolationState()
            await self._begin(job)

    def on_disconnect(self) -> None:
        """Note the loss of the connection."""
        self._job = None
        if not self._state.stopped:
            self._state = IsolationState(lost_at=time.monotonic())
        self._changed.set()

    async def run(self) -> None:
        """Act on the connection's state until cancelled."""
        while True:
            self._changed.clear()
            action, due = decide(time.monotonic(), self._state, self._seconds, self._ask)
            if action is IsolationAction.WAIT:
                with contextlib.suppress(TimeoutError):
                    async with timeout(None if due == math.inf else due - time.monotonic()):
                        await self._changed.wait()
            elif action is IsolationAction.STOP:
                self._state = IsolationState(stopped=True)
                reason = (
                    f"no coordinator for {self._seconds:g} s: "
                    "the worker is stopped until the controller confirms that it wants the node"
                )
                if await self._stop():
                    log.error(reason)
                    self._on_stopped(reason)
                else:
                    await self._resume()
            else:
                await self._ask_controller()

    async def _ask_controller(self) -> None:
        before = self._state
        try:
            wanted, answer = await self._is_wanted(), ""
        except ServiceUnavailable as error:
            wanted, answer = False, str(error)
        if self._state is not before:
            return  # the connection changed meanwhile: ask again
        self._state = IsolationState(stopped=True, asks=before.asks + 1, asked_at=time.monotonic())
        answer = answer or ("the controller wants this node" if wanted else "the controller does not want this node")
        if answer != self._last_answer:
            self._last_answer = answer
            log.warning("asked the controller", extra={"answer": answer})
        if wanted and self._job is not None:
            self._last_answer = ""
            await self._resume()

    async def _resume(self) -> None:
        self._state = IsolationState()
        if self._job is not None:
            await self._begin(self._job)
