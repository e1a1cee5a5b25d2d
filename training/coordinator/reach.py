"""Records which resources outside of the job the coordinator cannot reach (AWS, or a host file), and since when."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from dyntrain.controller.contract.reports import MAX_TEXT_LENGTH, Unreachable


@dataclass
class UnreachableResources:
    """The resources whose last request failed. Times are seconds since 1970."""

    _unreachable: dict[str, Unreachable] = field(default_factory=dict)

    def failed(self, resource: str, error: Exception, now: float) -> str:
        """Record a failed request, and return its message for the log."""
        since = self._unreachable[resource].since if resource in self._unreachable else now
        self._unreachable[resource] = Unreachable(what=resource, since=since, reason=str(error)[:MAX_TEXT_LENGTH])
        return (
            str(error) if since == now else f"{error} (since {dt.datetime.fromtimestamp(since, dt.UTC):%H:%M:%S} UTC)"
        )

    def answered(self, resource: str) -> None:
        self._unreachable.pop(resource, None)

    @property
    def unreachable(self) -> tuple[Unreachable, ...]:
        """The unreachable resources, the longest unreachable first."""
        return tuple(sorted(self._unreachable.values(), key=lambda resource: resource.since))
