"""Watches the metadata service for word that the machine will be taken."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from dyntrain.controller.contract.notices import GROUP_ENDS, NOTICE_SECONDS, RECOMMENDED
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import NodeError
from dyntrain.node_bootstrap.instance.metadata import MetadataClient

SPOT = "meta-data/spot/instance-action"
REBALANCE = "meta-data/events/recommendations/rebalance"
LIFECYCLE = "meta-data/autoscaling/target-lifecycle-state"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Notice:
    kind: str
    deadline: float


def parse_notice(path: str, text: str, now: float) -> Notice | None:
    """What an answer means at `now`; None for "nothing" and for what cannot be understood.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html
    https://docs.aws.amazon.com/autoscaling/ec2/userguide/retrieving-target-lifecycle-state-through-imds.html
    """
    if path == LIFECYCLE:
        return Notice(GROUP_ENDS, now + NOTICE_SECONDS) if text.strip() == "Terminated" else None
    try:
        body = json.loads(text)
        if path == SPOT:
            return Notice(f"spot-{body['action']}", _seconds(body["time"]))
        return Notice(RECOMMENDED, _seconds(body["noticeTime"]) + NOTICE_SECONDS)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def news(known: dict[str, Notice], path: str, notice: Notice | None) -> bool:
    """Whether it says more than what is known from the same place: something at all, another kind, or an earlier
    time.
    """
    if notice is None:
        return False
    before = known.get(path)
    return before is None or before.kind != notice.kind or notice.deadline < before.deadline


class NoticeWatch:
    def __init__(self, metadata: MetadataClient, told: Callable[[Notice], None], timing: Timing) -> None:
        self._metadata, self._told, self._timing = metadata, told, timing
        self.known: dict[str, Notice] = {}

    async def run(self) -> None:
        """Asks every `Timing.notices` seconds, until cancelled. A metadata service that fails is asked again."""
        while True:
            for path in (SPOT, REBALANCE, LIFECYCLE):
                try:
                    text = await self._metadata.read(path)
                except NodeError as error:
                    log.warning("cannot look for notices", extra={"reason": str(error)})
                    break
                notice = parse_notice(path, text, time.time()) if text is not None else None
                if notice is not None and news(self.known, path, notice):
                    self.known[path] = notice
                    log.warning(
                        "the machine may or will be taken", extra={"kind": notice.kind, "deadline": notice.deadline}
                    )
                    self._told(notice)
            await asyncio.sleep(self._timing.notices)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
