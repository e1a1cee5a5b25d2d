"""Signs of life besides the reports that a node has prepared, or has not: while its user data or its prepare-data run,
and, from base nodes, which prepare-data is on the volume now.

The controller keeps a launch alive only after one, and lets a group that it holds back launch again once prepare-data
has changed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Literal

from dyntrain.controller.contract.reports import MOST_TOLD, NodeReport
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import GiveUp, RetryLater, ServiceUnavailable
from dyntrain.node_bootstrap.instance.identity import Identity, read_identity
from dyntrain.node_bootstrap.instance.metadata import MetadataClient
from dyntrain.node_bootstrap.reports.report import Reports
from dyntrain.training.timeouts import timeout

TOLD, NOT_TOLD, NOBODYS = 0, 75, 78
log = logging.getLogger(__name__)


def report_of(
    identity: Identity, attempt: int, outcome: Literal["alive", "prepare_failed"], reason: str, script: str = ""
) -> NodeReport:
    return NodeReport(
        cluster=identity.cluster,
        instance_id=identity.instance_id,
        private_ip=identity.private_ip,
        attempt=attempt,
        outcome=outcome,
        reason=reason[:MOST_TOLD],
        at=time.time(),
        script=script,
        identity=identity.signed,
    )


async def until_taken(reports: Reports, report: NodeReport, timing: Timing) -> None:
    """Returns once the event bus has it."""
    tries = 0
    while True:
        try:
            return await asyncio.to_thread(reports.put, report)
        except ServiceUnavailable as error:
            log.warning("not told, will be repeated", extra={"outcome": report.outcome, "reason": str(error)})
        await asyncio.sleep(timing.report.delay(tries))
        tries += 1


@asynccontextmanager
async def told_alive(reports: Reports, report: NodeReport, timing: Timing) -> AsyncIterator[None]:
    """Told at once, and unchanged each `Timing.alive` seconds while the block runs: a lost one must not cost the
    launch.
    """

    async def again_and_again() -> None:
        while True:
            await until_taken(reports, report, timing)
            await asyncio.sleep(timing.alive)

    task = asyncio.create_task(again_and_again())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def tell_scripts(
    reports: Reports, digest: Callable[[], str], made: Callable[[str], NodeReport], timing: Timing
) -> None:
    """Which prepare-data is there, at once and whenever it is another one, until cancelled. `digest` may block, and
    raise OSError while there is none.
    """
    known = ""
    while True:
        with suppress(OSError):
            found = await asyncio.to_thread(digest)
            if found != known:
                await until_taken(reports, made(found), timing)
                known = found
        await asyncio.sleep(timing.script)


async def tell(
    metadata: MetadataClient,
    reports: Callable[[str], Reports],
    attempt: int,
    outcome: Literal["alive", "prepare_failed"],
    reason: str,
    seconds: float,
) -> int:
    """From user data, before there is a node's program. Exit code: 0 once it is taken; 75 when it was not within
    `seconds`, 78 when the instance belongs to no cluster.
    """
    timing = Timing()
    try:
        async with timeout(seconds):
            while True:
                try:
                    identity = await read_identity(metadata)
                    await until_taken(reports(identity.region), report_of(identity, attempt, outcome, reason), timing)
                    return TOLD
                except GiveUp as error:
                    log.error(str(error))
                    return NOBODYS
                except RetryLater as error:
                    log.warning(str(error))
                await asyncio.sleep(timing.report.first)
    except TimeoutError:
        log.error("the event bus took nothing for %.0f s", seconds)
        return NOT_TOLD
