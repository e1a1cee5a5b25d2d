"""Tells the controller how the node fares, again and again until it is heard."""

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
    def put(self, report: NodeReport) -> None:
        """The event bus took the report; nothing says that anybody handled it. Blocks, so it is called in a thread of
        its own. Raises ServiceUnavailable.
        """
        ...


class Status(Protocol):
    """Whom a supervisor tells how its node fares, besides the coordinator."""

    def report(self, outcome: str, reason: str, deadline: float | None = None) -> None: ...

    def listed(self, listed: bool) -> None:
        """The coordinator has said whether the target lists the node."""
        ...


def latest(known: NodeReport | None, new: NodeReport) -> NodeReport:
    """A node that is being taken away stays so, whatever else it has to say. Of two deadlines the earlier counts, but
    the one of a recommendation is none of AWS's: a notice that follows counts, though it names a later moment.
    """
    if known is None or known.outcome != "interrupted":
        return new
    if new.outcome != "interrupted" or new.deadline is None:
        return known
    if (known.reason == RECOMMENDED) != (new.reason == RECOMMENDED):
        return new if known.reason == RECOMMENDED else known
    return new if known.deadline is None or new.deadline < known.deadline else known


class Reporter:
    """Repeats the latest report unchanged (the same `at`: the controller then has nothing to write) with growing
    pauses.

    Only "prepared" has an acknowledgement, the coordinator's word that the node is listed; it is repeated again when
    that word is taken back. The others are repeated as long as the node lives, at most once a minute.
    """

    def __init__(self, reports: Reports, timing: Timing) -> None:
        self._reports, self._timing = reports, timing
        self._report: NodeReport | None = None
        self._listed = False
        self._sent = 0
        self._changed = asyncio.Event()

    @property
    def reports(self) -> Reports:
        """Where it sends them."""
        return self._reports

    @property
    def report(self) -> NodeReport | None:
        return self._report

    def set(self, report: NodeReport) -> None:
        chosen = latest(self._report, report)
        if chosen is not self._report:
            self._report, self._sent = chosen, 0
            self._changed.set()

    def listed(self, listed: bool) -> None:
        if listed != self._listed:
            self._listed = listed
            self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            if self._report is None or (self._report.outcome == "prepared" and self._listed):
                await self._changed.wait()
                continue
            await self._send(self._report)
            pause = spread(self._timing.report.delay(self._sent), random.random())
            self._sent += 1
            with contextlib.suppress(TimeoutError):
                async with timeout(pause):
                    await self._changed.wait()

    async def _send(self, report: NodeReport) -> None:
        try:
            await asyncio.to_thread(self._reports.put, report)
        except ServiceUnavailable as error:
            log.warning("report not sent, will be repeated", extra={"outcome": report.outcome, "reason": str(error)})
        else:
            log.info("reported", extra={"outcome": report.outcome, "repetition": self._sent})


class ControllerStatus:
    """`Status` for the controller: a report for each, which `reporter` repeats until it is heard."""

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

    def listed(self, listed: bool) -> None:
        self._reporter.listed(listed)
