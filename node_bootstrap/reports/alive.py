"""Signs of life: reports while user data or prepare-data run, and reports of base nodes on each new prepare-data.

Without signs of life the controller abandons a launch. After a change of prepare-data, the controller resumes the
suspended launches of a group.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Literal

from dyntrain.controller.contract.reports import MAX_TEXT_LENGTH, NodeReport
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import GiveUp, RetryLater, ServiceUnavailable
from dyntrain.node_bootstrap.instance.identity import Identity, read_identity
from dyntrain.node_bootstrap.instance.metadata import MetadataClient
from dyntrain.node_bootstrap.reports.report import Reports
from dyntrain.training.timeouts import timeout

REPORTED, NOT_REPORTED, NO_CLUSTER = 0, 75, 78
log = logging.getLogger(__name__)


def report_of(
    identity: Identity, attempt: int, outcome: Literal["alive", "prepare_failed"], reason: str, script: str = ""
) -> NodeReport:
    """Build a report of this node."""
    return NodeReport(
        cluster=identity.cluster,
        instance_id=identity.instance_id,
        private_ip=identity.private_ip,
        attempt=attempt,
        outcome=outcome,
        reason=reason[:MAX_TEXT_LENGTH],
        at=time.time(),
        script=script,
        identity=identity.signed,
    )


async def put_until_accepted(reports: Reports, report: NodeReport, timing: Timing) -> None:
    """Send the report, repeatedly until the event bus accepts it."""
    tries = 0
    while True:
        try:
            return await asyncio.to_thread(reports.put, report)
        except ServiceUnavailable as error:
            log.warning("report not sent, will be repeated", extra={"outcome": report.outcome, "reason": str(error)})
        await asyncio.sleep(timing.report.delay(tries))
        tries += 1


@asynccontextmanager
async def reporting_alive(reports: Reports, report: NodeReport, timing: Timing) -> AsyncIterator[None]:
    """Send the report every `Timing.alive` seconds while the block runs: one lost event must not end the launch."""

    async def send_repeatedly() -> None:
        while True:
            await put_until_accepted(reports, report, timing)
            await asyncio.sleep(timing.alive)

    task = asyncio.create_task(send_repeatedly())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def report_script_changes(
    reports: Reports, digest: Callable[[], str], make_report: Callable[[str], NodeReport], timing: Timing
) -> None:
    """Report prepare-data's digest at once and after each change, until cancelled.

    `digest` may block, and raises OSError while there is no script.
    """
    reported_digest = ""
    while True:
        with suppress(OSError):
            current_digest = await asyncio.to_thread(digest)
            if current_digest != reported_digest:
                await put_until_accepted(reports, make_report(current_digest), timing)
                reported_digest = current_digest
        await asyncio.sleep(timing.script)


async def report_user_data(
    metadata: MetadataClient,
    reports: Callable[[str], Reports],
    attempt: int,
    outcome: Literal["alive", "prepare_failed"],
    reason: str,
    seconds: float,
) -> int:
    """Send a report from user data, before the node's program runs; returns the exit code.

    0: accepted; 75: not within `seconds`; 78: the instance belongs to no cluster.
    """
    timing = Timing()
    try:
        async with timeout(seconds):
            while True:
                try:
                    identity = await read_identity(metadata)
                    await put_until_accepted(
                        reports(identity.region), report_of(identity, attempt, outcome, reason), timing
                    )
                    return REPORTED
                except GiveUp as error:
                    log.error(str(error))
                    return NO_CLUSTER
                except RetryLater as error:
                    log.warning(str(error))
                await asyncio.sleep(timing.report.first)
    except TimeoutError:
        log.error("the event bus accepted no report for %.0f s", seconds)
        return NOT_REPORTED
