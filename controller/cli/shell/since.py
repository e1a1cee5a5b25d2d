"""Parse the start times that people type as `--since`."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from dyntrain.controller.contract.errors import Misconfigured

_SPAN = re.compile(r"^(\d+(?:\.\d+)?)([smhd])$")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_since(since: str, now: float) -> float:
    """The start time in seconds since the epoch. Raises Misconfigured for a text that is no duration and no time."""
    span = _SPAN.match(since)
    if span is not None:
        return now - float(span[1]) * _SECONDS[span[2]]
    try:
        moment = datetime.fromisoformat(since)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except ValueError as error:
        raise Misconfigured(
            f"--since {since!r} is neither a span such as 30m, 2h or 7d nor an ISO 8601 time"
        ) from error
