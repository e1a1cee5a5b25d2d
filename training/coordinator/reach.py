"""Records which resources outside of the job (AWS or a host file) the coordinator cannot reach, and since when."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from dyntrain.controller.contract.reports import MAX_TEXT_LENGTH, Unreachable


@dataclass
class UnreachableResources:
    """The resources for which the coordinator's last request failed. Times are seconds since 1970."""

    _failures: dict[str, Unreachable] = field(default_factory=dict)

    def add_failure(self, resource: str, error: Exception, now: float) -> str:
        """Record that a request to a resource failed, and return a message for the log."""
        since = self._failures[resource].since if resource in self._failures else now
        self._failures[resource] = Unreachable(what=resource, since=since, reason=str(error)[:MAX_TEXT_LENGTH])
        return (
            str(error) if since == now else f"{error} (since {dt.datetime.fromtimestamp(since, dt.UTC):%H:%M:%S} UTC)"
        )

    def clear_failure(self, resource: str) -> None:
        self._failures.pop(resource, None)

    @property
    def unreachable(self) -> tuple[Unreachable, ...]:
        """The unreachable resources, starting with the resource that has been unreachable for the longest time."""
        return tuple(sorted(self._failures.values(), key=lambda resource: resource.since))
