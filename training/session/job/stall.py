"""A reported stall: a time in which some workers wait for other workers. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stall:
    """A stall in which the workers in `waiting` wait for the workers in `stalled`."""

    identity: tuple[str, int, str]  # phase, generation and place, which distinguish stalls
    stalled: tuple[str, ...]  # workers that keep others waiting; empty if all are inside the step
    waiting: tuple[str, ...]  # workers that wait
    reason: str  # sentence for users
    since: float  # start, in seconds since 1970
