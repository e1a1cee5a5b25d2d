"""A node that has lost its coordinator for too long stops its worker, and starts another only when the controller still wants the node.

The others have gone on without it by then, so its worker's state is of no use to anybody, and the instance may have been released meanwhile.
`decide` is pure; `Isolation` carries it out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

from node_bootstrap.errors import ServiceUnavailable
from node_bootstrap.pacing import Backoff

log = logging.getLogger(__name__)


class Step(Enum):
    WAIT = "wait"
    STOP = "stop the worker"
    ASK = "ask the controller"


@dataclass(frozen=True)
class Standing:
    """`lost_at` is None while the coordinator is connected; `asked_at` None when the controller must be asked at once."""

    lost_at: float | None = None
    stopped: bool = False
    asks: int = 0
    asked_at: float | None = None


def decide(now: float, standing: Standing, seconds: float, ask: Backoff) -> tuple[Step, float]:
    """What is to be done, and until when to wait (WAIT; infinite when only a change of the connection matters)."""
    if standing.stopped:
        due = now if standing.asked_at is None else standing.asked_at + ask.delay(max(0, standing.asks - 1))
        return (Step.ASK, now) if now >= due else (Step.WAIT, due)
    if standing.lost_at is None:
        return Step.WAIT, math.inf
    due = standing.lost_at + seconds
    return (Step.STOP, now) if now >= due else (Step.WAIT, due)


class Isolation:
    """`begin` starts the worker of a job, `stop` ends it until then; `stopped` tells the controller, `wanted` asks it. `stop` is False where
    there is no worker to be kept from training: the controller knows why, and would not want the node before it has one again.

    `wanted` raises ServiceUnavailable when there is no answer.
    """

    def __init__(
        self,
        begin: Callable[[str], Awaitable[None]],
        stop: Callable[[], Awaitable[bool]],
        wanted: Callable[[], Awaitable[bool]],
        stopped: Callable[[str], None],
        seconds: float,
        ask: Backoff,
    ) -> None:
        self._begin, self._stop, self._wanted, self._stopped = begin, stop, wanted, stopped
        self._seconds, self._ask = seconds, ask
        self._standing = Standing()
        self._job: str | None = None  # of the coordinator that is connected
        self._said = ""
        self._changed = asyncio.Event()

    async def welcomed(self, job: str) -> None:
        self._job = job
        if self._standing.stopped:
            self._standing = Standing(stopped=True)
            self._changed.set()
        else:
            self._standing = Standing()
            await self._begin(job)

    def lost(self) -> None:
        self._job = None
        if not self._standing.stopped:
            self._standing = Standing(lost_at=time.monotonic())
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            step, due = decide(time.monotonic(), self._standing, self._seconds, self._ask)
            if step is Step.WAIT:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if due == math.inf else due - time.monotonic()):
                        await self._changed.wait()
            elif step is Step.STOP:
                self._standing = Standing(stopped=True)
                reason = f"no coordinator for {self._seconds:g} s: the worker is stopped until the controller says that the node is wanted"
                if await self._stop():
                    log.error(reason)
                    self._stopped(reason)
                else:
                    await self._go_on()
            else:
                await self._inquire()

    async def _inquire(self) -> None:
        before = self._standing
        try:
            wanted, answer = await self._wanted(), ""
        except ServiceUnavailable as error:
            wanted, answer = False, str(error)
        if self._standing is not before:
            return  # the connection came or went meanwhile: ask anew
        self._standing = Standing(stopped=True, asks=before.asks + 1, asked_at=time.monotonic())
        answer = answer or ("the controller wants this node" if wanted else "the controller does not want this node")
        if answer != self._said:
            self._said = answer
            log.warning("asked the controller", extra={"answer": answer})
        if wanted and self._job is not None:
            self._said = ""
            await self._go_on()

    async def _go_on(self) -> None:
        self._standing = Standing()
        if self._job is not None:
            await self._begin(self._job)
