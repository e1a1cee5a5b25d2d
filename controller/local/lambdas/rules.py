"""Read the event rules and the settings of functions from a deployed SAM template.

https://docs.aws.amazon.com/serverless-application-model/latest/developerguide/sam-resource-function.html

The AWS emulator moto evaluates event patterns, which are written in EventBridge's language (prefix, suffix,
anything-but, exists, numeric, $or).
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

_RATE_EXPRESSION = re.compile(r"^rate\((\d+) (minute|hour|day)s?\)$")
_UNIT_SECONDS = {"minute": 60.0, "hour": 3600.0, "day": 86400.0}


def matches_pattern(pattern: dict[str, Any], event: Event) -> bool:
    return bool(EventPattern(None, pattern).matches_event(cast(Any, event)))


@dataclass(frozen=True)
class PatternRule:
    function: str  # name of the Lambda function
    pattern: dict[str, Any]  # EventBridge's pattern of events


@dataclass(frozen=True)
class ScheduleRule:
    function: str  # name of the Lambda function
    period: float  # seconds


@dataclass(frozen=True)
class StreamRule:
    """A rule that invokes a function with the records of a DynamoDB stream. The function gets a record if any pattern
    in `filters` matches the record, or if `filters` is empty.
    """

    function: str  # name of the Lambda function
    batch: int  # most records of one invocation
    stream_arn: str
    filters: tuple[dict[str, Any], ...] = ()  # patterns of stream records


@dataclass(frozen=True)
class Function:
    """The settings of a Lambda function."""

    name: str  # name of the Lambda function
    timeout: float  # seconds
    variables: dict[str, str]  # environment variables
    destination: str  # ARN of the SQS queue for failed events, or "" without a queue


@dataclass(frozen=True)
class EventRules:
    patterns: tuple[PatternRule, ...]  # rules that match events
    schedules: tuple[ScheduleRule, ...]  # rules that run periodically
    streams: tuple[StreamRule, ...]  # rules that deliver stream records

    def target_functions(self, event: Event) -> list[str]:
        """The names of the functions with a pattern that matches the event, without duplicates."""
        return list(dict.fromkeys(rule.function for rule in self.patterns if matches_pattern(rule.pattern, event)))


def period_of(expression: str) -> float:
    """The period of a `rate(...)` expression in seconds. Raises AppNotLoaded for an expression of another kind, such as
    `cron(...)`.
    """
    rate_match = _RATE_EXPRESSION.match(expression)
    if rate_match is None:
        raise AppNotLoaded(
            f"the embedded cloud runs rate(...) schedules only, not {expression!r}; use a rate in app.py"
        )
    return int(rate_match[1]) * _UNIT_SECONDS[rate_match[2]]


def parse_function(properties: Mapping[str, Any]) -> tuple[Function, EventRules]:
    """Parse the settings and event rules of a Lambda function. `properties` are the properties of an
    `AWS::Serverless::Function`, with resolved references. Raises AppNotLoaded for a schedule that is not a `rate(...)`
    expression.
    """
    name = str(properties["Handler"]).rpartition(".")[2]
    event_sources = [
        (event_source["Type"], event_source["Properties"]) for event_source in properties.get("Events", {}).values()
    ]
    stream_sources = [
        source_properties for source_type, source_properties in event_sources if source_type == "DynamoDB"
    ]
    failure_settings = [
        source_properties.get("DestinationConfig", {})
        for source_properties in (properties.get("EventInvokeConfig", {}), *stream_sources)
    ]
    failure_destinations = [
        str(failure_setting["OnFailure"]["Destination"])
        for failure_setting in failure_settings
        if "OnFailure" in failure_setting
    ]
    function_variables = {
        key: str(value) for key, value in properties.get("Environment", {}).get("Variables", {}).items()
    }
    function = Function(name, float(properties["Timeout"]), function_variables, next(iter(failure_destinations), ""))
    pattern_rules = tuple(
        PatternRule(name, dict(source_properties["Pattern"]))
        for source_type, source_properties in event_sources
        if "Pattern" in source_properties
    )
    schedule_rules = tuple(
        ScheduleRule(name, period_of(source_properties["Schedule"]))
        for source_type, source_properties in event_sources
        if source_type == "Schedule"
    )
    return function, EventRules(
        pattern_rules,
        schedule_rules,
        tuple(_stream_rule(name, source_properties) for source_properties in stream_sources),
    )


def _stream_rule(function: str, stream_source: Mapping[str, Any]) -> StreamRule:
    filter_patterns = [
        source_filter["Pattern"] for source_filter in stream_source.get("FilterCriteria", {}).get("Filters", ())
    ]
    filters = tuple(json.loads(pattern) if isinstance(pattern, str) else dict(pattern) for pattern in filter_patterns)
    return StreamRule(function, int(stream_source["BatchSize"]), str(stream_source["Stream"]), filters)


def merged_rules(rules: Iterable[EventRules]) -> EventRules:
    rule_sets = tuple(rules)
    return EventRules(
        tuple(rule for rule_set in rule_sets for rule in rule_set.patterns),
        tuple(rule for rule_set in rule_sets for rule in rule_set.schedules),
        tuple(rule for rule_set in rule_sets for rule in rule_set.streams),
    )
