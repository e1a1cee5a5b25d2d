"""A job's progress and history, as its reports carry it: enough for curves without the shared volume.

Nothing here decides anything. A reader that cannot make sense of it passes it over (`readable_or_none`): a curve must
never cost the membership that stands beside it.
"""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any

from dyntrain.controller.contract.wire import Wire
from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler

VERSION = 1  # format of both models; readers skip a later one
HISTORY_BYTES = 16_000  # of JSON: a report is written every few seconds, into an item that is billed by the kilobyte
METRICS_SHOWN = 8

Metrics = Annotated[
    dict[str, float | None], Field(description="name: mean over all samples; null: not a number, it diverged")
]


def finite(value: float | None) -> float | None:
    """The value as `Metrics` hold it: JSON has neither NaN nor infinity, so those are a gap in the curve."""
    return value if value is not None and isfinite(value) else None


class JobProgress(Wire):
    """How far the job is, between 0 and 1, and its expected end."""

    version: int = Field(VERSION, ge=1, le=VERSION)
    fraction: float | None = Field(None, ge=0, le=1, description="of all samples of all epochs; null: not known yet")
    eta_seconds: float | None = Field(
        None, ge=0, description="at the pace of the last minutes, pauses included; a script may stop earlier"
    )
    metrics: Metrics = Field({})
    metrics_epoch: int | None = Field(None, description="the epoch that `metrics` are of, counted from 0")
    silenced: dict[str, str] = Field({}, description="rules of the script's checks that were silenced, or all: how")
    stalled: str = Field("", description="who keeps the others waiting, and where; empty: nobody")


class HistoryPoint(Wire):
    """What was trained between the point before and `at`."""

    at: float
    epoch: int
    step: int
    workers: int
    samples_per_second: float
    metrics: Metrics = Field({})


class HistoryMark(Wire):
    """An event of the job; `event` is its name in `events.jsonl`."""

    at: float
    event: str
    instance: str = ""
    generation: int | None = None
    seconds: float | None = Field(None, description="how long it kept the others from training, or will last")
    reason: str = ""
    phases: dict[str, float] = Field({})


class JobHistory(Wire):
    """The whole job, coarser the longer it lasts; the newest marks, and how many there were of each kind. At most
    `HISTORY_BYTES` of JSON.
    """

    version: int = Field(VERSION, ge=1, le=VERSION)
    points: tuple[HistoryPoint, ...] = ()
    marks: tuple[HistoryMark, ...] = ()
    counts: dict[str, int] = Field({}, description="event: how many there were, also those whose mark is not kept")
    paused_seconds: float = Field(0.0, description="all pauses of the survivors together")


def readable_or_none(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    try:
        return handler(value)
    except ValidationError:
        return None
