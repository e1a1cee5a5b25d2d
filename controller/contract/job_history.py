"""A job's progress and history in the job's reports, which suffice for curves without the shared volume.

No decision depends on these models. Readers ignore an invalid curve (`readable_or_none`) and still use the membership
in the same report.
"""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any

from dyntrain.controller.contract.wire import Wire
from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler

VERSION = 1  # format of JobProgress and JobHistory; readers ignore later formats
HISTORY_BYTES = 16_000  # of JSON; a report is written every few seconds, and DynamoDB bills each kilobyte
METRICS_SHOWN = 8

Metrics = Annotated[
    dict[str, float | None], Field(description="name: mean over all samples; null: not a number, it diverged")
]


def finite(value: float | None) -> float | None:
    """The value, or None for NaN and infinity, which JSON cannot contain. None is a gap in the curve."""
    return value if value is not None and isfinite(value) else None


class JobProgress(Wire):
    """The completed fraction of the job and the expected time until its end."""

    version: int = Field(VERSION, ge=1, le=VERSION)
    fraction: float | None = Field(
        None, ge=0, le=1, description="completed part of all samples of all epochs; null: not known yet"
    )
    eta_seconds: float | None = Field(
        None, ge=0, description="at the pace of the last minutes, pauses included; a script may stop earlier"
    )
    metrics: Metrics = Field({})
    metrics_epoch: int | None = Field(None, description="the epoch that `metrics` are of, counted from 0")
    silenced: dict[str, str] = Field({}, description="rules of the script's checks that were silenced, or all: how")
    stalled: str = Field("", description="the worker that delays the other workers, and where; empty: none")


class HistoryPoint(Wire):
    """The training between the previous point and the time `at`."""

    at: float
    epoch: int
    step: int
    workers: int
    samples_per_second: float
    metrics: Metrics = Field({})


class HistoryMark(Wire):
    """An event of the job. `event` is the event's name in `events.jsonl`."""

    at: float
    event: str
    instance: str = ""
    generation: int | None = None
    seconds: float | None = Field(None, description="pause of the other workers, or expected duration")
    reason: str = ""
    phases: dict[str, float] = Field({})


class JobHistory(Wire):
    """The history of the whole job, with at most `HISTORY_BYTES` of JSON. Points get coarser as the job gets longer.
    `marks` are the newest events; `counts` counts all events of each kind.
    """

    version: int = Field(VERSION, ge=1, le=VERSION)
    points: tuple[HistoryPoint, ...] = ()
    marks: tuple[HistoryMark, ...] = ()
    counts: dict[str, int] = Field({}, description="number of events of each kind, including those without a kept mark")
    paused_seconds: float = Field(0.0, description="all pauses of the survivors together")


def readable_or_none(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    try:
        return handler(value)
    except ValidationError:
        return None
