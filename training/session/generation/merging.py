"""Merges the members' reports into one report on their generation. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dyntrain.training import events
from dyntrain.training.protocol.messages import CheckIn, Position


def merge_check_ins(
    generation: int, start: Position, end: Position, check_ins: Mapping[str, CheckIn], now: float
) -> events.Segment:
    """Merge the workers' check-ins at a boundary.

    The samples are summed, the longest duration is taken, and metrics are averaged, weighted by each worker's count.
    """
    metric_totals: dict[str, tuple[float, float]] = {}
    for check_in in check_ins.values():
        for name, (total, count) in check_in.metrics.items():
            old_total, old_count = metric_totals.get(name, (0.0, 0.0))
            metric_totals[name] = (old_total + total, old_count + count)
    return events.Segment(
        at=now,
        generation=generation,
        workers=len(check_ins),
        start=start,
        end=end,
        epoch=start.epoch,
        samples=sum(check_in.samples for check_in in check_ins.values()),
        seconds=max(check_in.seconds for check_in in check_ins.values()),
        pids={instance_id: check_in.pid for instance_id, check_in in check_ins.items()},
        metrics={name: total / count for name, (total, count) in sorted(metric_totals.items()) if count},
    )


def longest_durations(phases: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the longest duration of each phase over all members, in the order in which the phases first appear."""
    longest_seconds: dict[str, float] = {}
    for member_phases in phases:
        for name, seconds in member_phases.items():
            longest_seconds[name] = max(longest_seconds.get(name, 0.0), seconds)
    return longest_seconds
