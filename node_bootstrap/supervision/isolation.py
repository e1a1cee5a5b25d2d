"""Stops the worker of a node that has had no coordinator for too long, until the controller wants the node again.

By the time the worker is stopped, all other workers train without this worker, so its state is useless. The controller
may release the instance before the worker is stopped, so the node asks the controller before the node continues.
`core.isolation` decides when to stop the worker, and `Isolation` carries out the decision.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable

from dyntrain.node_bootstrap.core.isolation import IsolationAction, IsolationState, next_isolation_action
from dyntrain.node_bootstrap.core.pacing import Backoff
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.training.timeouts import timeout

log = logging.getLogger(__name__)


class Isolation:
    """Stops the worker when the node has had no coordinator for `seconds` seconds.

    The worker is started again once the controller wants the node and a coordinator is connected. `begin` starts the
    worker of a job. `stop` stops the running worker. `on_stopped` reports to the controller that the worker was
    stopped. `is_wanted` asks the controller whether the node may continue, or raises ServiceUnavailable.

    `stop` returns False if the node had already given up a failed worker. The controller knows when a node has given up
    its worker, and does not let such a node continue. The next coordinator may restart a worker that was given up, so
    the node does not ask the controller after `stop` has returned False.
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
        """Record that a coordinator is connected.

        Start the worker of the coordinator's job, unless `run` has stopped the worker.
        """
        self._job = job
        if self._state.worker_stopped:
            self._state = IsolationState(worker_stopped=True)
            self._changed.set()
        else:
            self._state = IsolationState()
            await self._begin(job)

    def on_disconnect(self) -> None:
        """Record that the connection to the coordinator is lost."""
        self._job = None
        if not self._state.worker_stopped:
            self._state = IsolationState(lost_at=time.monotonic())
        self._changed.set()

    async def run(self) -> None:
        """Stop the worker or query the controller whenever `next_isolation_action` says so.

        Runs until the task is cancelled.
        """
        while True:
            self._changed.clear()
            action, due_at = next_isolation_action(time.monotonic(), self._state, self._seconds, self._ask)
            if action is IsolationAction.WAIT:
                with contextlib.suppress(TimeoutError):
                    async with timeout(None if due_at == math.inf else due_at - time.monotonic()):
                        await self._changed.wait()
            elif action is IsolationAction.STOP:
                self._state = IsolationState(worker_stopped=True)
                stop_reason = (
                    f"no coordinator for {self._seconds:g} s: "
                    "the worker is stopped until the controller confirms that it wants the node"
                )
                if await self._stop():
                    log.error(stop_reason)
                    self._on_stopped(stop_reason)
                else:
                    await self._resume_worker()
            else:
                await self._query_controller()

    async def _query_controller(self) -> None:
        state_before_query = self._state
        try:
            node_is_wanted, controller_answer = await self._is_wanted(), ""
        except ServiceUnavailable as error:
            node_is_wanted, controller_answer = False, str(error)
        if self._state is not state_before_query:
            return  # the connection changed meanwhile: ask again
        self._state = IsolationState(
            worker_stopped=True, query_count=state_before_query.query_count + 1, queried_at=time.monotonic()
        )
        controller_answer = controller_answer or (
            "the controller wants this node" if node_is_wanted else "the controller does not want this node"
        )
        if controller_answer != self._last_answer:
            self._last_answer = controller_answer
            log.warning("asked the controller", extra={"answer": controller_answer})
        if node_is_wanted and self._job is not None:
            self._last_answer = ""
            await self._resume_worker()

    async def _resume_worker(self) -> None:
        self._state = IsolationState()
        if self._job is not None:
            await self._begin(self._job)
