"""A reported stall: workers that wait for other workers. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stall:
    """Workers in `waiting` that wait for the workers in `stalled`."""

    at_what: tuple[str, int, str]  # phase, generation and place, which distinguish stalls
    stalled: tuple[str, ...]  # workers that keep others waiting; empty if all are inside the step
    waiting: tuple[str, ...]  # workers that wait
    reason: str
    since: float  # start, in seconds since 1970
