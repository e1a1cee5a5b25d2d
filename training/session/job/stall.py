"""A reported stall: workers that wait for others. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stall:
    """Workers that wait for the `stalled` ones, of whom there are none if all are inside the step.

    `at_what` tells two stalls apart. `since` is in seconds since the Unix epoch.
    """

    at_what: tuple[str, int, str]
    stalled: tuple[str, ...]
    waiting: tuple[str, ...]
    reason: str
    since: float
