"""Which handler gets which event: the rules that the Chalice app declares, read from the app by a handler process.

Patterns are evaluated by moto's implementation of EventBridge's language (prefix, suffix, anything-but, exists, numeric, $or).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

from moto.events.models import EventPattern

from controller.local.errors import AppNotLoaded
from controller.local.events import Event

_RATE = re.compile(r"^rate\((\d+) (minute|hour|day)s?\)$")
_UNIT_SECONDS = {"minute": 60.0, "hour": 3600.0, "day": 86400.0}


def matches(pattern: dict[str, Any], event: Event) -> bool:
    return bool(EventPattern(None, pattern).matches_event(cast(Any, event)))


@dataclass(frozen=True)
class PatternRule:
    function: str
    pattern: dict[str, Any]


@dataclass(frozen=True)
class ScheduleRule:
    function: str
    period: float


@dataclass(frozen=True)
class StreamRule:
    """`batch` is the event source's own limit of records in one invocation."""

    function: str
    batch: int


@dataclass(frozen=True)
class Rules:
    patterns: tuple[PatternRule, ...]
    schedules: tuple[ScheduleRule, ...]
    streams: tuple[StreamRule, ...]

    def targets(self, event: Event) -> list[str]:
        """Names of the handlers whose pattern the event matches, each once."""
        return list(dict.fromkeys(rule.function for rule in self.patterns if matches(rule.pattern, event)))


def period_of(expression: str) -> float:
    """Seconds of a `rate(...)`. Raises AppNotLoaded for anything else: the embedded cloud keeps no calendar."""
    found = _RATE.match(expression)
    if found is None:
        raise AppNotLoaded(f"the embedded cloud runs rate(...) schedules only, not {expression!r}; use a rate in app.py")
    return int(found[1]) * _UNIT_SECONDS[found[2]]


def parse_rules(described: list[dict[str, Any]]) -> Rules:
    """From what a handler process says of the app: `{"kind", "function", ...}` for each event source."""
    return Rules(
        patterns=tuple(PatternRule(item["function"], item["pattern"]) for item in described if item["kind"] == "pattern"),
        schedules=tuple(ScheduleRule(item["function"], period_of(item["expression"])) for item in described if item["kind"] == "schedule"),
        streams=tuple(StreamRule(item["function"], item["batch"]) for item in described if item["kind"] == "stream"),
    )
