"""Notices of the metadata service that EC2 will take the instance away."""

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
    """A notice: EC2 may take the instance away at `deadline`."""

    kind: str
    deadline: float


def parse_notice(path: str, text: str, now: float) -> Notice | None:
    """Parse a response that was read at `now`; None without a notice, or for an unknown format.

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


def is_news(known: dict[str, Notice], path: str, notice: Notice | None) -> bool:
    """Whether the notice is new for its path: the first one, another kind, or an earlier deadline."""
    if notice is None:
        return False
    previous = known.get(path)
    return previous is None or previous.kind != notice.kind or notice.deadline < previous.deadline


class NoticeWatch:
    """Polls the metadata service and calls `on_notice` for each new notice."""

    def __init__(self, metadata: MetadataClient, on_notice: Callable[[Notice], None], timing: Timing) -> None:
        self._metadata, self._on_notice, self._timing = metadata, on_notice, timing
        self.notices: dict[str, Notice] = {}

    async def run(self) -> None:
        """Poll every `Timing.notices` seconds until cancelled, also while the metadata service fails."""
        while True:
            for path in (SPOT, REBALANCE, LIFECYCLE):
                try:
                    text = await self._metadata.read(path)
                except NodeError as error:
                    log.warning("cannot read notices", extra={"reason": str(error)})
                    break
                notice = parse_notice(path, text, time.time()) if text is not None else None
                if notice is not None and is_news(self.notices, path, notice):
                    self.notices[path] = notice
                    log.warning(
                        "EC2 may take the instance away",
                        extra={"kind": notice.kind, "deadline": notice.deadline},
                    )
                    self._on_notice(notice)
            await asyncio.sleep(self._timing.notices)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
