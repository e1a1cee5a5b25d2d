"""The progress and the history that a job's reports contain, so that curves can be drawn without access to the shared
volume.

No decision of the controller depends on a job's progress or history. If the history in a report is invalid, readers
ignore the history (`readable_or_none`), but still use the other fields of the report.
"""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any

from dyntrain.controller.contract.wire import Wire
from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler

VERSION = 1  # format of JobProgress and JobHistory; readers ignore later formats
HISTORY_BYTES = 16_000  # of JSON; a report is written every few seconds, and DynamoDB bills each kilobyte
METRICS_SHOWN = 8  # metrics of the script that a report contains at most

Metrics = Annotated[
    dict[str, float | None], Field(description="name: mean over all samples; null: not a number, it diverged")
]


def finite(value: float | None) -> float | None:  # None for NaN and infinity
    """Returns the value, or None for NaN and infinity, which JSON cannot contain. A curve has a gap where its value is
    None.
    """
    return value if value is not None and isfinite(value) else None


class JobProgress(Wire):
    """The completed fraction of the job and the expected time until its end."""

    version: int = Field(VERSION, ge=1, le=VERSION)  # of the format
    fraction: float | None = Field(  # completed part of the job
        None, ge=0, le=1, description="completed part of all samples of all epochs; null: not known yet"
    )
    eta_seconds: float | None = Field(  # expected time until the job's end
        None, ge=0, description="at the pace of the last minutes, pauses included; a script may stop earlier"
    )
    metrics: Metrics = Field({})  # of the training script
    metrics_epoch: int | None = Field(None, description="the epoch that `metrics` are of, counted from 0")
    silenced: dict[str, str] = Field({}, description="rules of the script's checks that were silenced, or all: how")
    stalled: str = Field("", description="the worker that delays the other workers, and where; empty: none")


class HistoryPoint(Wire):
    """A point of the job's history: the training from the time of the previous point to the time `at`."""

    at: float  # time of the point, in seconds since the epoch
    epoch: int  # at the time `at`
    step: int  # at the time `at`
    workers: int  # number of workers
    samples_per_second: float
    metrics: Metrics = Field({})  # of the training script


class HistoryMark(Wire):
    """An event in the history of a job. `event` is the event's name in `events.jsonl`."""

    at: float  # time of the event, in seconds since the epoch
    event: str  # the event's name in `events.jsonl`
    instance: str = ""  # the instance that the event concerns
    generation: int | None = None  # of the job's workers
    seconds: float | None = Field(None, description="pause of the other workers, or expected duration")
    reason: str = ""  # why the event happened
    phases: dict[str, float] = Field({})  # name of a phase of the event -> its seconds


class JobHistory(Wire):
    """The history of the whole job, with at most `HISTORY_BYTES` of JSON. The longer the job, the longer the time
    between two points. `marks` contains only the newest events.
    """

    version: int = Field(VERSION, ge=1, le=VERSION)  # of the format
    points: tuple[HistoryPoint, ...] = ()  # oldest first
    marks: tuple[HistoryMark, ...] = ()  # the newest events, oldest first
    counts: dict[str, int] = Field({}, description="number of events of each kind, including those without a kept mark")
    paused_seconds: float = Field(0.0, description="all pauses of the survivors together")


def readable_or_none(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    try:
        return handler(value)
    except ValidationError:
        return None
