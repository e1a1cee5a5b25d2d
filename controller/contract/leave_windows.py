"""The times at which nodes may leave a cluster at the request of users: the optional field `leave_windows` of
ClusterPolicy.

The schedule and the duration of a window have the same format as in Karpenter's disruption budgets
(https://karpenter.sh/docs/concepts/disruption/). A leave window also has a time zone. A disruption budget of
Karpenter forbids changes during its window, whereas a leave window allows nodes to leave.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from pydantic import BaseModel, ConfigDict, Field, field_validator

LEAVE_TAG = "dyntrain:leave"  # with the value `now` on an instance: the instance leaves without waiting for a window
LEAVE_NOW = "now"  # the value of `LEAVE_TAG` that releases an instance
SHORTEST_WINDOW = timedelta(minutes=10)  # pools are checked every five minutes
_DURATION_PATTERN = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,5})m)?")
_ANY_DAY = datetime(2024, 1, 1, tzinfo=UTC)  # to test whether a schedule ever occurs


class LeaveWindow(BaseModel):
    """A window that opens at each time of the cron `schedule` and stays open for `duration`.

    If the clocks go forward past a time of the schedule, the window opens right after the skipped hour. If the clocks
    go back, so that a time of the schedule occurs twice, the window opens at the first occurrence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    schedule: str = Field(max_length=200, description="five fields of cron: minute, hour, day of month, month, weekday")
    duration: str = Field(description="such as 8h, 90m or 1h30m; ten minutes at least")
    time_zone: str = Field("UTC", max_length=64, description="of `schedule`, such as Europe/Berlin")

    @property
    def length(self) -> timedelta:  # how long the window stays open
        return _parse_duration(self.duration)

    @field_validator("schedule")
    @classmethod
    def _check_schedule(cls, value: str) -> str:
        from cronsim import CronSim, CronSimError  # not needed on nodes, nor for clusters without windows

        if len(value.split()) != 5:
            raise ValueError("the schedule must have five fields: minute, hour, day of month, month, weekday")
        try:
            occurrence = next(CronSim(value, _ANY_DAY), None)
        except CronSimError as error:
            raise ValueError(f"the schedule {value!r} is wrong: {error}") from error
        if occurrence is None:
            raise ValueError(f"the schedule {value!r} contains no time that ever occurs")
        return value

    @field_validator("duration")
    @classmethod
    def _check_duration(cls, value: str) -> str:
        if _parse_duration(value) < SHORTEST_WINDOW:
            raise ValueError(
                "the duration must be hours and minutes such as 8h, 90m or 1h30m, and at least ten minutes"
            )
        return value

    @field_validator("time_zone")
    @classmethod
    def _check_time_zone(cls, value: str) -> str:
        try:
            zone(value)
        except (KeyError, ValueError, OSError) as error:  # zoneinfo's errors for an unknown name
            raise ValueError(f"{value!r} is not the name of a known time zone, such as Europe/Berlin") from error
        return value


def zone(name: str) -> tzinfo:
    """The time zone with the name `name`. Raises the errors of zoneinfo for an unknown name. For UTC no time zone
    database is needed.
    """
    from zoneinfo import ZoneInfo

    return UTC if name == "UTC" else ZoneInfo(name)


def _parse_duration(text: str) -> timedelta:
    match = _DURATION_PATTERN.fullmatch(text)
    return timedelta(hours=int(match[1] or 0), minutes=int(match[2] or 0)) if match else timedelta()
