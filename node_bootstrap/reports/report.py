"""Reports the node's state to the controller, repeatedly until it is acknowledged."""

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
    """The event bus."""

    def put(self, report: NodeReport) -> None:
        """Send the report; the event bus has accepted it on return, the controller may not have handled it yet.

        Blocks, so it is called in a thread. Raises ServiceUnavailable.
        """
        ...


class Status(Protocol):
    """Who is informed of the node's state, besides the coordinator."""

    def report(self, outcome: str, reason: str, deadline: float | None = None) -> None:
        """Report a new state of the node."""
        ...

    def set_listed(self, listed: bool) -> None:
        """Note whether the target lists the node, as the coordinator says."""
        ...


def latest(known: NodeReport | None, new: NodeReport) -> NodeReport:
    """The report that counts: a node that is being taken away stays "interrupted", whatever it reports later.

    Of two deadlines the earlier counts. But the deadline of a recommendation is ours, not AWS's: a notice that follows
    it counts even if its deadline is later.
    """
    if known is None or known.outcome != "interrupted":
        return new
    if new.outcome != "interrupted" or new.deadline is None:
        return known
    if (known.reason == RECOMMENDED) != (new.reason == RECOMMENDED):
        return new if known.reason == RECOMMENDED else known
    return new if known.deadline is None or new.deadline < known.deadline else known


class Reporter:
    """Repeats the latest report unchanged with growing pauses; the same `at` means that the controller need not write
    it again.

    Only "prepared" is acknowledged, by the coordinator's message that the node is listed; it is repeated again when the
    node is no longer listed. The others are repeated as long as the node lives, at most once a minute.
    """

    def __init__(self, reports: Reports, timing: Timing) -> None:
        self._reports, self._timing = reports, timing
        self._report: NodeReport | None = None
        self._listed = False
        self._repetition = 0
        self._changed = asyncio.Event()

    @property
    def reports(self) -> Reports:
        """Where the reports go."""
        return self._reports

    @property
    def report(self) -> NodeReport | None:
        return self._report

    def set(self, report: NodeReport) -> None:
        """Replace the report, unless the earlier one counts more."""
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
