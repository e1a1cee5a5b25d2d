"""The curves of a job that the page shows, with a new point for each report of the job. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dyntrain.controller.contract.job_history import finite

MAX_POINTS = 1200  # more points cannot be seen on a screen


@dataclass(frozen=True)
class Point:  # of a job's curves
    at: float  # the time of the report
    workers: int  # number of workers
    samples_per_second: float
    metrics: Mapping[str, float | None]  # the values of the job's metrics, by name


@dataclass(frozen=True)
class Curves:  # of a job's training
    """The training curves of the job `job`. A report of a different job begins new curves."""

    job: str = ""  # name of the job
    points: tuple[Point, ...] = ()  # oldest first

    def with_job(self, job: Mapping[str, Any] | None) -> Curves:
        """Return the curves with an added point for the job's latest report, or unchanged if the report is not new."""
        if job is None or (job["job"] == self.job and self.points and self.points[-1].at >= job["heard_at"]):
            return self
        metrics = (job.get("progress") or {}).get("metrics") or {}
        point = Point(job["heard_at"], job["workers"], job["samples_per_second"], metrics)
        earlier_points = self.points if job["job"] == self.job else ()
        return Curves(job["job"], thin_out((*earlier_points, point)))

    def columns(self, reported: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """The points of the curves as columns for a chart: `{"at": [...], "workers": [...], "samples_per_second":
        [...], "metrics": {name: [...]}}`.

        `reported` are the points of the job's own history, which also covers the time before the page was opened.
        """
        reported_points = [
            Point(entry["at"], entry["workers"], entry["samples_per_second"], entry["metrics"]) for entry in reported
        ]
        last_reported_at = reported_points[-1].at if reported_points else -math.inf
        points = [*reported_points, *(point for point in self.points if point.at > last_reported_at)]
        metric_names = sorted({name for point in points for name in point.metrics})
        return {
            "at": [point.at for point in points],
            "workers": [point.workers for point in points],
            "samples_per_second": [finite(point.samples_per_second) for point in points],
            "metrics": {name: [finite(point.metrics.get(name)) for point in points] for name in metric_names},
        }


def thin_out(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """Remove some of the older points if there are more than MAX_POINTS points. The older half of the points loses
    every second point, except points where the number of workers changes.
    """
    if len(points) <= MAX_POINTS:
        return points
    half_count = len(points) // 2
    kept_points = [
        point
        for index, point in enumerate(points[:half_count])
        if index % 2 == 0 or point.workers != points[index - 1].workers
    ]
    return (*kept_points, *points[half_count:])
