"""Tells the controller how the node fares, again and again until it is heard."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from controller.contract import NODE_SOURCE, NodeReport
from node_bootstrap.errors import ServiceUnavailable
from node_bootstrap.pacing import Timing, spread
from node_bootstrap.ports import Reports

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient

log = logging.getLogger(__name__)


class EventBridgeReports:
    """`Reports` on the account's default event bus."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._client: EventBridgeClient | None = None

    def put(self, report: NodeReport) -> None:
        try:
            if self._client is None:
                settings = Config(connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 3})
                self._client = boto3.session.Session(region_name=self._region).client("events", config=settings)
            answer = self._client.put_events(
                Entries=[
                    {"Source": NODE_SOURCE, "DetailType": report.detail_type, "Detail": report.model_dump_json(), "Resources": [report.instance_id]}
                ]
            )
        except (BotoCoreError, ClientError) as error:
            raise ServiceUnavailable(f"cannot report {report.outcome}: {error}") from error
        if answer["FailedEntryCount"]:
            entry = answer["Entries"][0]
            raise ServiceUnavailable(f"cannot report {report.outcome}: {entry.get('ErrorCode')}: {entry.get('ErrorMessage')}")


def latest(known: NodeReport | None, new: NodeReport) -> NodeReport:
    """A node that is being taken away stays so, whatever else it has to say; of two deadlines the earlier counts."""
    if known is None or known.outcome != "interrupted":
        return new
    if new.outcome == "interrupted" and new.deadline is not None and (known.deadline is None or new.deadline < known.deadline):
        return new
    return known


class Reporter:
    """Repeats the latest report unchanged (the same `at`: the controller then has nothing to write) with growing pauses.

    Only "prepared" has an acknowledgement, the coordinator's word that the node is listed; it is repeated again when that word is
    taken back. The others are repeated as long as the node lives, at most once a minute.
    """

    def __init__(self, reports: Reports, timing: Timing) -> None:
        self._reports, self._timing = reports, timing
        self._report: NodeReport | None = None
        self._listed = False
        self._sent = 0
        self._changed = asyncio.Event()

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
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def _send(self, report: NodeReport) -> None:
        try:
            await asyncio.to_thread(self._reports.put, report)
        except ServiceUnavailable as error:
            log.warning("report not sent, will be repeated", extra={"outcome": report.outcome, "reason": str(error)})
        else:
            log.info("reported", extra={"outcome": report.outcome, "repetition": self._sent})
