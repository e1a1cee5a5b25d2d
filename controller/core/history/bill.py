"""The bill of a cluster: the hours in which its instances ran, and their cost where prices are known. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dyntrain.controller.core.history.metering import costs_cluster, last_entry
from dyntrain.controller.core.history.trail import Metered
from dyntrain.controller.core.views.view import Rules, View

ROLES = ("master", "base", "elastic")  # what a machine can be for a cluster, in the order of the bill
Prices = Mapping[tuple[str, str], float | None]  # dollars an hour, by instance type and market


@dataclass(frozen=True)
class Span:
    """A period in which a machine ran in one role. `ended` is None while the machine runs. `start_unknown` says that
    the machine already ran before `began`, but that its start is not recorded.
    """

    instance: str  # instance id
    role: str  # what the machine was for the cluster
    type: str  # the EC2 instance type
    market: str  # the purchase option, such as spot
    began: float  # seconds since the epoch
    ended: float | None  # None: the machine still runs
    start_unknown: bool = False  # the machine's start is not recorded


@dataclass(frozen=True)
class LineItem:
    role: str  # what the machines were for the cluster
    type: str  # the EC2 instance type
    market: str  # the purchase option, such as spot
    instance: str  # "" for several instances
    instances: int  # number of instances
    running: int  # number of instances that run now
    hours: float  # instance-hours
    price: float | None  # dollars per instance and hour; None: unknown

    @property
    def cost(self) -> float | None:
        return None if self.price is None else self.price * self.hours


@dataclass(frozen=True)
class Bill:
    """The bill of a cluster, with the sums of its lines. `unpriced` is the number of instance-hours whose price is
    unknown, so that `cost` does not include these hours. `hourly` is the cost per hour of the instances that run now.
    """

    lines: tuple[LineItem, ...]  # one for each role, instance type and market
    hours: float  # instance-hours
    cost: float | None  # dollars; None: no price is known
    unpriced: float  # hours without a known price
    running: int  # number of instances that run now
    hourly: float | None  # dollars an hour at present; None: unknown


def spans_of(entries: Iterable[Metered], views: Iterable[View], rules: Rules, start: float) -> list[Span]:
    """The periods after the time `start` in which machines ran for the cluster. `entries` are all entries of the audit
    trail from `start` on.

    A machine whose first entry says that the machine stopped already ran at the time `start`. A machine that runs now
    and has no entry already ran at the time `start`, because a later start would have an entry.
    """
    entries_by_instance: dict[str, list[Metered]] = {}
    for entry in sorted(
        entries, key=lambda entry: entry.since
    ):  # concurrent functions may write entries out of order, and twice
        entries_by_instance.setdefault(entry.instance, []).append(entry)
    spans = [
        span
        for instance_entries in entries_by_instance.values()
        for span in _spans_of_instance(instance_entries, start)
    ]
    for node in views:
        bill_entry = last_entry(node)
        if (
            node.instance not in entries_by_instance
            and bill_entry is not None
            and bill_entry.state == "on"
            and costs_cluster(node, rules)
        ):
            started_at = node.started or start
            spans.append(_span_of_entry(bill_entry, max(started_at, start), None, start_unknown=started_at < start))
    return spans


def spans_after(spans: Iterable[Span], start: float) -> list[Span]:
    """The parts of the spans that lie after the time `start`."""
    return [
        replace(span, began=max(span.began, start), start_unknown=span.start_unknown and span.began >= start)
        for span in spans
        if span.ended is None or span.ended > start
    ]


def unmetered_instances(
    trail: Iterable[Metered], trained_instances: Iterable[str], views: Iterable[View], rules: Rules
) -> list[str]:
    """The instances that run or ran for the cluster, but have no entry in the audit trail. An instance without an entry
    started and ended between two reads, or before the audit trail recorded machines.
    """
    recorded_instances = {entry.instance for entry in trail}
    nodes = {node.instance: node for node in views}
    metered_instances = recorded_instances | {
        instance_id for instance_id, node in nodes.items() if last_entry(node) is not None
    }
    running_instances = {instance_id for instance_id, node in nodes.items() if costs_cluster(node, rules)}
    return sorted((running_instances | set(trained_instances)) - metered_instances)


def bill(spans: Iterable[Span], prices: Prices, now: float, *, per_instance: bool = False) -> Bill:
    """Compute the bill for the periods `spans`. With `per_instance`, each instance has its own line in the bill."""
    spans_by_line: dict[tuple[str, str, str, str], list[Span]] = {}
    for span in spans:
        spans_by_line.setdefault((span.role, span.type, span.market, span.instance if per_instance else ""), []).append(
            span
        )
    lines = [_line_item(key, line_spans, prices, now) for key, line_spans in spans_by_line.items()]
    lines.sort(key=lambda line: (_role_sort_key(line.role), line.type, line.market, line.instance))
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
    is_first_entry = True
    for entry in entries:
        if entry.state == "on" and running_entry is None:
            running_entry = entry
        elif entry.state == "on" and running_entry is not None and entry.line != running_entry.line:
            yield from _ended_span(running_entry, entry.since, start)
            running_entry = entry
        elif entry.state == "off" and running_entry is not None:
            yield from _ended_span(running_entry, entry.since, start)
            running_entry = None
        elif entry.state == "off" and is_first_entry and entry.since > start:
            yield _span_of_entry(entry, start, entry.since, start_unknown=True)
        is_first_entry = False
    if running_entry is not None:
        yield _span_of_entry(running_entry, max(running_entry.since, start), None)


def _ended_span(running_entry: Metered, ended: float, start: float) -> Iterable[Span]:
    if ended > start:
        yield _span_of_entry(running_entry, max(running_entry.since, start), max(ended, running_entry.since))


def _span_of_entry(entry: Metered, began: float, ended: float | None, *, start_unknown: bool = False) -> Span:
    return Span(entry.instance, entry.role, entry.type, entry.market, began, ended, start_unknown)


def _line_item(key: tuple[str, str, str, str], spans: list[Span], prices: Prices, now: float) -> LineItem:
    role, instance_type, market, instance_id = key
    running_seconds = sum(max((now if span.ended is None else span.ended) - span.began, 0.0) for span in spans)
    return LineItem(
        role=role,
        type=instance_type,
        market=market,
        instance=instance_id,
        instances=len({span.instance for span in spans}),
        running=len({span.instance for span in spans if span.ended is None}),
        hours=running_seconds / 3600.0,
        price=prices.get((instance_type, market)),
    )


def _role_sort_key(role: str) -> tuple[int, int, str]:
    """A sort key that puts roles into the order master, base, elastic, and then the ranks of a job by their number."""
    if role in ROLES:
        return (ROLES.index(role), 0, "")
    rank_number = role.rpartition(" ")[2]
    return (len(ROLES), int(rank_number) if rank_number.isdecimal() else 0, role)
