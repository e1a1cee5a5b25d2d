"""Records what the coordinator cannot reach outside of the job (AWS, or a host file), and since when."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from dyntrain.controller.contract.reports import MAX_TEXT_LENGTH, Unreachable


@dataclass
class Reach:
    """The resources whose last request failed. Times are seconds since the Unix epoch."""

    _lacking: dict[str, Unreachable] = field(default_factory=dict)

    def failed(self, what: str, error: Exception, now: float) -> str:
        """Record a failed request, and return its message for the log."""
        since = self._lacking[what].since if what in self._lacking else now
        self._lacking[what] = Unreachable(what=what, since=since, reason=str(error)[:MAX_TEXT_LENGTH])
        return (
            str(error) if since == now else f"{error} (since {dt.datetime.fromtimestamp(since, dt.UTC):%H:%M:%S} UTC)"
        )

    def answered(self, what: str) -> None:
        self._lacking.pop(what, None)

    @property
    def lacking(self) -> tuple[Unreachable, ...]:
        """The unreachable resources, the longest unreachable first."""
        return tuple(sorted(self._lacking.values(), key=lambda one: one.since))
