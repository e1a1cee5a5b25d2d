"""A reported stall: workers that wait for others. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stall:
    """Workers in `waiting` that wait for those in `stalled`, which is empty if all are inside the step.

    `at_what` distinguishes stalls. `since` is in seconds since the Unix epoch.
    """

    at_what: tuple[str, int, str]
    stalled: tuple[str, ...]
    waiting: tuple[str, ...]
    reason: str
    since: float
