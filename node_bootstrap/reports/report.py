"""Reports the node's state to the controller, repeatedly until the report is acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from typing import Protocol

from dyntrain.controller.contract.notices import RECOMMENDED
from dyntrain.controller.contract.reports import NodeReport
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.training.protocol.clocks import spread
from dyntrain.training.timeouts import timeout

log = logging.getLogger(__name__)


class Reports(Protocol):
    """The event bus to which reports are sent."""

    def put(self, report: NodeReport) -> None:
        """Send the report; on return the event bus has accepted it, but the controller may not have handled it.

        Blocks, so it is called in a thread. Raises ServiceUnavailable.
        """
        ...


class Status(Protocol):
    """Receiver of reports on the node's state, besides the coordinator."""

    def report(self, outcome: str, reason: str, deadline: float | None = None) -> None:
        """Report a new state of the node."""
        ...

    def set_listed(self, listed: bool) -> None:
        """Note the coordinator's message whether the target lists the node."""
        ...


def latest(known: NodeReport | None, new: NodeReport) -> NodeReport:
    """Return the report that counts. After a report "interrupted", later reports of other outcomes do not count.

    Of two deadlines the earlier one counts. But AWS sets no deadline for a rebalance recommendation, so a later notice
    replaces the recommendation even with a later deadline.
    """
    if known is None or known.outcome != "interrupted":
        return new
    if new.outcome != "interrupted" or new.deadline is None:
        return known
    if (known.reason == RECOMMENDED) != (new.reason == RECOMMENDED):
        return new if known.reason == RECOMMENDED else known
    return new if known.deadline is None or new.deadline < known.deadline else known


class Reporter:
    """Repeats the latest report unchanged, with growing pauses. The controller recognises a repetition by its `at`.

    Only the report "prepared" is acknowledged, by the coordinator's message that the node is listed. When the node is
    no longer listed, the report is repeated. Other reports are repeated until the node ends, at most once a minute.
    """

    def __init__(self, reports: Reports, timing: Timing) -> None:
        self._reports, self._timing = reports, timing
        self._report: NodeReport | None = None
        self._listed = False
        self._repetition = 0
        self._changed = asyncio.Event()

    @property
    def reports(self) -> Reports:
        """The event bus to which the reports are sent."""
        return self._reports

    @property
    def report(self) -> NodeReport | None:
        return self._report

    def set(self, report: NodeReport) -> None:
        """Replace the report, unless the earlier report still counts."""
        latest_report = latest(self._report, report)
        if latest_report is not self._report:
            self._report, self._repetition = latest_report, 0
            self._changed.set()

    def set_listed(self, listed: bool) -> None:
        """Note whether the node is listed."""
        if listed != self._listed:
            self._listed = listed
            self._changed.set()

    async def run(self) -> None:
        """Send reports until cancelled."""
        while True:
            self._changed.clear()
            if self._report is None or (self._report.outcome == "prepared" and self._listed):
                await self._changed.wait()
                continue
            await self._send(self._report)
            pause = spread(self._timing.report.delay(self._repetition), random.random())
            self._repetition += 1
            with contextlib.suppress(TimeoutError):
                async with timeout(pause):
                    await self._changed.wait()

    async def _send(self, report: NodeReport) -> None:
        try:
            await asyncio.to_thread(self._reports.put, report)
        except ServiceUnavailable as error:
            log.warning("report not sent, will be repeated", extra={"outcome": report.outcome, "reason": str(error)})
        else:
            log.info("reported", extra={"outcome": report.outcome, "repetition": self._repetition})


class ControllerStatus:
    """`Status` for the controller: `reporter` repeats each report until it is acknowledged."""

    def __init__(self, identity: Identity, attempt: int, reporter: Reporter) -> None:
        self._identity, self._attempt, self._reporter = identity, attempt, reporter

    def report(self, outcome: str, reason: str, deadline: float | None = None, script: str = "") -> None:
        identity = self._identity
        self._reporter.set(
            NodeReport.model_validate(
                {
                    "cluster": identity.cluster,
                    "instance_id": identity.instance_id,
                    "private_ip": identity.private_ip,
                    "attempt": self._attempt,
                    "outcome": outcome,
                    "reason": reason[:2000],
                    "at": time.time(),
                    "deadline": deadline,
                    "script": script,
                    "identity": identity.signed,
                }
            )
        )

    def set_listed(self, listed: bool) -> None:
        self._reporter.set_listed(listed)
