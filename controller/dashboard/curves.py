"""A job's curves, which get a point with each report. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dyntrain.controller.contract.job_history import finite

POINTS = 1200  # more points cannot be seen on a screen


@dataclass(frozen=True)
class Point:
    at: float
    workers: int
    samples_per_second: float
    metrics: Mapping[str, float | None]


@dataclass(frozen=True)
class Curves:
    """The curves of one job, named `job`. Another job begins new curves."""

    job: str = ""
    points: tuple[Point, ...] = ()

    def with_job(self, job: Mapping[str, Any] | None) -> Curves:
        """The curves with a point for the job's latest report, if that report is new."""
        if job is None or (job["job"] == self.job and self.points and self.points[-1].at >= job["heard_at"]):
            return self
        metrics = (job.get("progress") or {}).get("metrics") or {}
        point = Point(job["heard_at"], job["workers"], job["samples_per_second"], metrics)
        earlier_points = self.points if job["job"] == self.job else ()
        return Curves(job["job"], thinned((*earlier_points, point)))

    def columns(self, reported: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """Columns for a chart: `{"at": [...], "workers": [...], "samples_per_second": [...], "metrics": {name:
        [...]}}`.

        `reported` are the points of the job's own history, which also covers the time before the page was opened.
        """
        reported_points = [
            Point(entry["at"], entry["workers"], entry["samples_per_second"], entry["metrics"]) for entry in reported
        ]
        last = reported_points[-1].at if reported_points else -math.inf
        points = [*reported_points, *(point for point in self.points if point.at > last)]
        names = sorted({name for point in points for name in point.metrics})
        return {
            "at": [point.at for point in points],
            "workers": [point.workers for point in points],
            "samples_per_second": [finite(point.samples_per_second) for point in points],
            "metrics": {name: [finite(point.metrics.get(name)) for point in points] for name in names},
        }


def thinned(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """The points, at most POINTS: then the older half loses every second point without a change of workers."""
    if len(points) <= POINTS:
        return points
    half = len(points) // 2
    kept = [
        point
        for number, point in enumerate(points[:half])
        if number % 2 == 0 or point.workers != points[number - 1].workers
    ]
    return (*kept, *points[half:])
