"""Reports the node's state to the controller; each report is repeated until it is acknowledged."""

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
        """Send the report to the event bus, and wait until the bus (not yet the controller) has accepted the report.

        The method `put` blocks, so the caller runs it in a thread. Raises ServiceUnavailable.
        """
        ...


class StatusReceiver(Protocol):
    """Receiver of reports on the node's state: on EC2, the controller."""

    def report(self, outcome: str, reason: str, deadline: float | None = None) -> None:
        """Report the new state `outcome` of the node, and the reason for the change."""
        ...

    def set_listed(self, listed: bool) -> None:
        """Record whether the controller's target lists the node, according to the coordinator."""
        ...


def preferred_report(earlier: NodeReport | None, new: NodeReport) -> NodeReport:
    """Return the report that the node sends: `earlier` (None: there is no earlier report) or `new`.

    A report with the outcome "interrupted" is not replaced by a report with another outcome. Of two reports with the
    outcome "interrupted", the report with the earlier deadline is sent. AWS sets no deadline for a rebalance
    recommendation. Therefore the report of an interruption notice replaces the report of a rebalance recommendation,
    even if the notice's deadline is later.
    """
    if earlier is None or earlier.outcome != "interrupted":
        return new
    if new.outcome != "interrupted" or new.deadline is None:
        return earlier
    if (earlier.reason == RECOMMENDED) != (new.reason == RECOMMENDED):
        return new if earlier.reason == RECOMMENDED else earlier
    return new if earlier.deadline is None or new.deadline < earlier.deadline else earlier


class Reporter:
    """Sends the latest report repeatedly and unchanged, with growing pauses.

    The controller recognises a repeated report by the time in its field `at`. Only a report with the outcome "prepared"
    can be acknowledged, by the coordinator's message that the controller's target lists the node. When the controller's
    target no longer lists the node, the report "prepared" is repeated again. Reports with other outcomes than
    "prepared" are repeated until the node's program ends.
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
        """Send `report` from now on, unless `preferred_report` keeps the earlier report."""
        report_to_send = preferred_report(self._report, report)
        if report_to_send is not self._report:
            self._report, self._repetition = report_to_send, 0
            self._changed.set()

    def set_listed(self, listed: bool) -> None:
        """Record whether the controller's target lists the node."""
        if listed != self._listed:
            self._listed = listed
            self._changed.set()

    async def run(self) -> None:
        """Send the latest report, and repeat it with growing pauses, until cancelled."""
        while True:
            self._changed.clear()
            if self._report is None or (self._report.outcome == "prepared" and self._listed):
                await self._changed.wait()
                continue
            await self._send(self._report)
            pause = spread(self._timing.report_backoff.delay(self._repetition), random.random())
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
    """Reports the node's state to the controller. `reporter` repeats each report until it is acknowledged."""

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
