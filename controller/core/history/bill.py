"""Instance-hours from the running times of machines, and their cost where prices are known. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dyntrain.controller.core.history.metering import costs_cluster, last_entry
from dyntrain.controller.core.history.trail import Metered
from dyntrain.controller.core.views.view import Rules, View

ROLES = ("master", "base", "elastic")
Prices = Mapping[tuple[str, str], float | None]  # dollars an hour, by instance type and market


@dataclass(frozen=True)
class Span:
    """The time in which a machine ran in one role, from `began` to `ended`; `ended` None: the machine still runs.
    `start_unknown`: the machine ran before `began`, but its start is not recorded.
    """

    instance: str
    role: str
    type: str
    market: str
    began: float
    ended: float | None
    start_unknown: bool = False


@dataclass(frozen=True)
class LineItem:
    role: str
    type: str
    market: str
    instance: str  # "" for several instances
    instances: int
    running: int
    hours: float
    price: float | None

    @property
    def cost(self) -> float | None:
        return None if self.price is None else self.price * self.hours


@dataclass(frozen=True)
class Bill:
    """A bill with its sums. `unpriced` are hours without a known price, which no sum of money contains. `hourly` is the
    present cost an hour.
    """

    lines: tuple[LineItem, ...]
    hours: float
    cost: float | None
    unpriced: float
    running: int
    hourly: float | None


def spans_of(entries: Iterable[Metered], views: Iterable[View], rules: Rules, start: float) -> list[Span]:
    """The running times after `start`. `entries` are the whole audit trail from `start` on.

    A machine ran at `start` already if its first entry is an end, or if the machine runs without any entry. A later
    beginning would be among the entries.
    """
    by_instance: dict[str, list[Metered]] = {}
    for entry in sorted(
        entries, key=lambda entry: entry.since
    ):  # concurrent functions may write entries out of order, and twice
        by_instance.setdefault(entry.instance, []).append(entry)
    spans = [span for instance_entries in by_instance.values() for span in _spans_of_instance(instance_entries, start)]
    for node in views:
        last_metered = last_entry(node)
        if (
            node.instance not in by_instance
            and last_metered is not None
            and last_metered.state == "on"
            and costs_cluster(node, rules)
        ):
            began = node.started or start
            spans.append(_span_of_entry(last_metered, max(began, start), None, start_unknown=began < start))
    return spans


def spans_after(spans: Iterable[Span], start: float) -> list[Span]:
    """The parts of the spans after `start`."""
    return [
        replace(span, began=max(span.began, start), start_unknown=span.start_unknown and span.began >= start)
        for span in spans
        if span.ended is None or span.ended > start
    ]


def unmetered(
    trail: Iterable[Metered], trained_instances: Iterable[str], views: Iterable[View], rules: Rules
) -> list[str]:
    """Instances that ran or run for the cluster without an entry in the audit trail. Such instances started and ended
    between two readings, or before the trail recorded machines.
    """
    recorded = {entry.instance for entry in trail}
    nodes = {node.instance: node for node in views}
    metered = recorded | {name for name, node in nodes.items() if last_entry(node) is not None}
    running = {name for name, node in nodes.items() if costs_cluster(node, rules)}
    return sorted((running | set(trained_instances)) - metered)


def bill(spans: Iterable[Span], prices: Prices, now: float, *, per_instance: bool = False) -> Bill:
    """The bill of the spans. With `per_instance`, each instance has its own line."""
    by_line: dict[tuple[str, str, str, str], list[Span]] = {}
    for span in spans:
        by_line.setdefault((span.role, span.type, span.market, span.instance if per_instance else ""), []).append(span)
    lines = [_line_item(key, line_spans, prices, now) for key, line_spans in by_line.items()]
    lines.sort(key=lambda line: (_rank(line.role), line.type, line.market, line.instance))
    priced_lines = [(line, line.price) for line in lines if line.price is not None]
    return Bill(
        lines=tuple(lines),
        hours=sum(line.hours for line in lines),
        cost=sum(price * line.hours for line, price in priced_lines) if priced_lines else None,
        unpriced=sum(line.hours for line in lines if line.price is None),
        running=sum(line.running for line in lines),
        hourly=None
        if any(line.running and line.price is None for line in lines)
        else sum(price * line.running for line, price in priced_lines),
    )


def _spans_of_instance(entries: Iterable[Metered], start: float) -> Iterable[Span]:
    running_entry: Metered | None = None
    first = True
    for entry in entries:
        if entry.state == "on" and running_entry is None:
            running_entry = entry
        elif entry.state == "on" and running_entry is not None and entry.line != running_entry.line:
            yield from _ended_span(running_entry, entry.since, start)
            running_entry = entry
        elif entry.state == "off" and running_entry is not None:
            yield from _ended_span(running_entry, entry.since, start)
            running_entry = None
        elif entry.state == "off" and first and entry.since > start:
            yield _span_of_entry(entry, start, entry.since, start_unknown=True)
        first = False
    if running_entry is not None:
        yield _span_of_entry(running_entry, max(running_entry.since, start), None)


def _ended_span(running_entry: Metered, ended: float, start: float) -> Iterable[Span]:
    if ended > start:
        yield _span_of_entry(running_entry, max(running_entry.since, start), max(ended, running_entry.since))


def _span_of_entry(entry: Metered, began: float, ended: float | None, *, start_unknown: bool = False) -> Span:
    return Span(entry.instance, entry.role, entry.type, entry.market, began, ended, start_unknown)


def _line_item(key: tuple[str, str, str, str], spans: list[Span], prices: Prices, now: float) -> LineItem:
    role, kind, market, instance = key
    seconds = sum(max((now if span.ended is None else span.ended) - span.began, 0.0) for span in spans)
    return LineItem(
        role=role,
        type=kind,
        market=market,
        instance=instance,
        instances=len({span.instance for span in spans}),
        running=len({span.instance for span in spans if span.ended is None}),
        hours=seconds / 3600.0,
        price=prices.get((kind, market)),
    )


def _rank(role: str) -> tuple[int, int, str]:
    """The sort key of a role: master, base, elastic, then the ranks of a job by number."""
    if role in ROLES:
        return (ROLES.index(role), 0, "")
    number = role.rpartition(" ")[2]
    return (len(ROLES), int(number) if number.isdecimal() else 0, role)
