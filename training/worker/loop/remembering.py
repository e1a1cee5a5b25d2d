"""What the script wants to find again after every change and restart: it travels with the state."""

from __future__ import annotations

import json
from typing import Any

MOST_REMEMBERED = 200_000  # as JSON: it is in the header of every state


def remembered(own: dict[str, Any]) -> dict[str, Any]:
    return dict(own.get("remembered", {}))


def remember(own: dict[str, Any], name: str, value: Any) -> None:
    """`own`: of the state. Raises ValueError when it becomes too much."""
    everything = {**remembered(own), name: value}
    if len(json.dumps(everything)) > MOST_REMEMBERED:
        raise ValueError(f"job.remember({name!r}, ...): all that is remembered must stay below {MOST_REMEMBERED} bytes")
    own["remembered"] = everything
