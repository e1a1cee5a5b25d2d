"""Watches the instance metadata service for notices that EC2 may take the instance away."""

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

SPOT_PATH = "meta-data/spot/instance-action"
REBALANCE_PATH = "meta-data/events/recommendations/rebalance"
LIFECYCLE_PATH = "meta-data/autoscaling/target-lifecycle-state"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Notice:
    """A notice that EC2 may take the instance away."""

    kind: str  # such as "spot-terminate"
    deadline: float  # time at which EC2 may take the instance away


def parse_notice(path: str, text: str, now: float) -> Notice | None:
    """Parse `text`, read at the time `now` from `path` of the metadata service; returns None if it is no notice.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html
    https://docs.aws.amazon.com/autoscaling/ec2/userguide/retrieving-target-lifecycle-state-through-imds.html
    """
    if path == LIFECYCLE_PATH:
        return Notice(GROUP_ENDS, now + NOTICE_SECONDS) if text.strip() == "Terminated" else None
    try:
        notice_fields = json.loads(text)
        if path == SPOT_PATH:
            return Notice(f"spot-{notice_fields['action']}", _time_of(notice_fields["time"]))
        return Notice(RECOMMENDED, _time_of(notice_fields["noticeTime"]) + NOTICE_SECONDS)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def is_new_notice(earlier_notices: dict[str, Notice], path: str, notice: Notice | None) -> bool:
    """Whether `notice` is the first from `path`, has another kind than the previous notice, or an earlier deadline."""
    if notice is None:
        return False
    previous_notice = earlier_notices.get(path)
    return previous_notice is None or previous_notice.kind != notice.kind or notice.deadline < previous_notice.deadline


class NoticeWatch:
    """Polls the instance metadata service, and calls `on_notice` for each new notice."""

    def __init__(self, metadata: MetadataClient, on_notice: Callable[[Notice], None], timing: Timing) -> None:
        self._metadata, self._on_notice, self._timing = metadata, on_notice, timing
        self.notices: dict[str, Notice] = {}

    async def run(self) -> None:
        """Poll the metadata service every `Timing.notice_poll_seconds` until cancelled.

        A failed request is logged, and the polling continues.
        """
        while True:
            for path in (SPOT_PATH, REBALANCE_PATH, LIFECYCLE_PATH):
                try:
                    text = await self._metadata.read(path)
                except NodeError as error:
                    log.warning("cannot read notices", extra={"reason": str(error)})
                    break
                notice = parse_notice(path, text, time.time()) if text is not None else None
                if notice is not None and is_new_notice(self.notices, path, notice):
                    self.notices[path] = notice
                    log.warning(
                        "EC2 may take the instance away",
                        extra={"kind": notice.kind, "deadline": notice.deadline},
                    )
                    self._on_notice(notice)
            await asyncio.sleep(self._timing.notice_poll_seconds)


def _time_of(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
