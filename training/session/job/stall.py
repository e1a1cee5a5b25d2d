"""That workers wait for others, as it was told. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stall:
    """`at_what` tells two of them apart. `stalled`: nobody's, where all are inside the step. `since`: seconds since the
    epoch.
    """

    at_what: tuple[str, int, str]
    stalled: tuple[str, ...]
    waiting: tuple[str, ...]
    reason: str
    since: float
