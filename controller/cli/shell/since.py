"""Parse the start times that users type as `--since`."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from dyntrain.controller.contract.errors import Misconfigured

_DURATION = re.compile(r"^(\d+(?:\.\d+)?)([smhd])$")
_SECONDS_BY_UNIT = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_since(since: str, now: float) -> float:
    """The start time that the text `since` means, in seconds since the epoch. Raises Misconfigured for a text that is
    neither a duration nor a time.
    """
    duration_match = _DURATION.match(since)
    if duration_match is not None:
        return now - float(duration_match[1]) * _SECONDS_BY_UNIT[duration_match[2]]
    try:
        start_time = datetime.fromisoformat(since)
        return (start_time if start_time.tzinfo else start_time.replace(tzinfo=UTC)).timestamp()
    except ValueError as error:
        raise Misconfigured(
            f"--since {since!r} is neither a span such as 30m, 2h or 7d nor an ISO 8601 time"
        ) from error
