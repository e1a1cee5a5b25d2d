"""Read the event rules and the settings of functions from a deployed SAM template.

https://docs.aws.amazon.com/serverless-application-model/latest/developerguide/sam-resource-function.html

moto evaluates the patterns in EventBridge's language (prefix, suffix, anything-but, exists, numeric, $or).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from dyntrain.controller.local.errors import AppNotLoaded
from dyntrain.controller.local.events import Event
from moto.events.models import EventPattern

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
    """A stream that invokes a function. `batch` limits the records of one invocation. A record passes if any pattern in
    `filters` matches, or if there are no filters.
    """

    function: str
    batch: int
    stream_arn: str
    filters: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Function:
    """A Lambda function. `destination`: the ARN of the queue for events that the function could not handle; empty
    without a queue.
    """

    name: str
    timeout: float
    variables: dict[str, str]
    destination: str


@dataclass(frozen=True)
class Rules:
    patterns: tuple[PatternRule, ...]
    schedules: tuple[ScheduleRule, ...]
    streams: tuple[StreamRule, ...]

    def targets(self, event: Event) -> list[str]:
        """Names of the handlers whose pattern the event matches, each once."""
        return list(dict.fromkeys(rule.function for rule in self.patterns if matches(rule.pattern, event)))


def period_of(expression: str) -> float:
    """The period of a `rate(...)` expression in seconds. Raises AppNotLoaded for any other expression."""
    match = _RATE.match(expression)
    if match is None:
        raise AppNotLoaded(
            f"the embedded cloud runs rate(...) schedules only, not {expression!r}; use a rate in app.py"
        )
    return int(match[1]) * _UNIT_SECONDS[match[2]]


def parse_function(properties: Mapping[str, Any]) -> tuple[Function, Rules]:
    """Parse a function. `properties` belong to an `AWS::Serverless::Function`, with all references resolved. Raises
    AppNotLoaded for a schedule that is no rate.
    """
    name = str(properties["Handler"]).rpartition(".")[2]
    sources = [(source["Type"], source["Properties"]) for source in properties.get("Events", {}).values()]
    streams = [source_properties for kind, source_properties in sources if kind == "DynamoDB"]
    failures = [
        source_properties.get("DestinationConfig", {})
        for source_properties in (properties.get("EventInvokeConfig", {}), *streams)
    ]
    destinations = [str(failure["OnFailure"]["Destination"]) for failure in failures if "OnFailure" in failure]
    variables = {key: str(value) for key, value in properties.get("Environment", {}).get("Variables", {}).items()}
    function = Function(name, float(properties["Timeout"]), variables, next(iter(destinations), ""))
    patterns = tuple(
        PatternRule(name, dict(source_properties["Pattern"]))
        for kind, source_properties in sources
        if "Pattern" in source_properties
    )
    schedules = tuple(
        ScheduleRule(name, period_of(source_properties["Schedule"]))
        for kind, source_properties in sources
        if kind == "Schedule"
    )
    return function, Rules(
        patterns, schedules, tuple(_stream(name, source_properties) for source_properties in streams)
    )


def _stream(function: str, source: Mapping[str, Any]) -> StreamRule:
    patterns = [source_filter["Pattern"] for source_filter in source.get("FilterCriteria", {}).get("Filters", ())]
    filters = tuple(json.loads(pattern) if isinstance(pattern, str) else dict(pattern) for pattern in patterns)
    return StreamRule(function, int(source["BatchSize"]), str(source["Stream"]), filters)


def merged_rules(rules: Iterable[Rules]) -> Rules:
    rule_sets = tuple(rules)
    return Rules(
        tuple(rule for rule_set in rule_sets for rule in rule_set.patterns),
        tuple(rule for rule_set in rule_sets for rule in rule_set.schedules),
        tuple(rule for rule_set in rule_sets for rule in rule_set.streams),
    )
