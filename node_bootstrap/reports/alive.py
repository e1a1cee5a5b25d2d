"""Sends signs of life while the user data script or prepare-data runs, and reports changes of prepare-data.

Without signs of life the controller abandons the launch of an instance. When the prepare-data script has changed, the
controller resumes an Auto Scaling group's launches if they are suspended.
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

REPORTED, NOT_REPORTED, NO_CLUSTER = 0, 75, 78  # exit codes
log = logging.getLogger(__name__)


def report_of(
    identity: Identity, attempt: int, outcome: Literal["alive", "prepare_failed"], reason: str, script: str = ""
) -> NodeReport:
    """Make a report on this node's state for the controller."""
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
    """Send the report to the event bus, repeatedly until the bus accepts it."""
    failed_tries = 0
    while True:
        try:
            return await asyncio.to_thread(reports.put, report)
        except ServiceUnavailable as error:
            log.warning("report not sent, will be repeated", extra={"outcome": report.outcome, "reason": str(error)})
        await asyncio.sleep(timing.report_backoff.delay(failed_tries))
        failed_tries += 1


@asynccontextmanager
async def reporting_alive(reports: Reports, report: NodeReport, timing: Timing) -> AsyncIterator[None]:
    """Send the report every `Timing.sign_of_life_seconds` while the `with` block runs, since an event may be lost."""

    async def send_repeatedly() -> None:
        while True:
            await put_until_accepted(reports, report, timing)
            await asyncio.sleep(timing.sign_of_life_seconds)

    sending_task = asyncio.create_task(send_repeatedly())
    try:
        yield
    finally:
        sending_task.cancel()
        with suppress(asyncio.CancelledError):
            await sending_task


async def report_script_changes(
    reports: Reports, digest: Callable[[], str], make_report: Callable[[str], NodeReport], timing: Timing
) -> None:
    """Report the digest of the prepare-data script at once and after each change, until cancelled.

    The function `digest` computes the script's digest. `digest` may block, and raises OSError while there is no script.
    """
    reported_digest = ""
    while True:
        with suppress(OSError):
            current_digest = await asyncio.to_thread(digest)
            if current_digest != reported_digest:
                await put_until_accepted(reports, make_report(current_digest), timing)
                reported_digest = current_digest
        await asyncio.sleep(timing.script_check_seconds)


async def report_user_data(
    metadata: MetadataClient,
    reports: Callable[[str], Reports],
    attempt: int,
    outcome: Literal["alive", "prepare_failed"],
    reason: str,
    seconds: float,
) -> int:
    """Report the state of the user data script, before the node's program runs; returns the exit code.

    The exit code is 0 if the event bus accepted the report, and 75 if no report was accepted within `seconds`. The exit
    code is 78 if the instance is configured wrongly, so that its cluster cannot be determined.
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
                await asyncio.sleep(timing.report_backoff.first)
    except TimeoutError:
        log.error("the event bus accepted no report for %.0f s", seconds)
        return NOT_REPORTED
