"""When nodes may leave a cluster at people's request: the optional field `leave_windows` of ClusterPolicy.

Schedule and duration have the format of Karpenter's disruption budgets
(https://karpenter.sh/docs/concepts/disruption/), plus a time zone. A budget of Karpenter forbids changes during its
window. Here nodes leave only during a window.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from pydantic import BaseModel, ConfigDict, Field, field_validator

LEAVE_TAG = "dyntrain:leave"  # with the value `now` on an instance: the instance leaves without waiting for a window
LEAVE_NOW = "now"
SHORTEST_WINDOW = timedelta(minutes=10)  # pools are checked every five minutes
_DURATION = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,5})m)?")
_ANY_DAY = datetime(2024, 1, 1, tzinfo=UTC)


class LeaveWindow(BaseModel):
    """A window that opens at each time of `schedule` and stays open for the elapsed time `duration`.

    When the zone's clocks go forward, a skipped time opens right after the skipped hour. A time that occurs twice opens
    at its first occurrence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    schedule: str = Field(max_length=200, description="five fields of cron: minute, hour, day of month, month, weekday")
    duration: str = Field(description="such as 8h, 90m or 1h30m; ten minutes at least")
    time_zone: str = Field("UTC", max_length=64, description="of `schedule`, such as Europe/Berlin")

    @property
    def length(self) -> timedelta:
        return _length(self.duration)

    @field_validator("schedule")
    @classmethod
    def _has_occurrence(cls, value: str) -> str:
        from cronsim import CronSim, CronSimError  # not needed on nodes, nor for clusters without windows

        if len(value.split()) != 5:
            raise ValueError("must have five fields: minute, hour, day of month, month, weekday")
        try:
            occurrence = next(CronSim(value, _ANY_DAY), None)
        except CronSimError as error:
            raise ValueError(f"{error} in {value!r}") from error
        if occurrence is None:
            raise ValueError(f"{value!r} never occurs")
        return value

    @field_validator("duration")
    @classmethod
    def _long_enough(cls, value: str) -> str:
        if _length(value) < SHORTEST_WINDOW:
            raise ValueError("must be hours and minutes such as 8h, 90m or 1h30m, and ten minutes at least")
        return value

    @field_validator("time_zone")
    @classmethod
    def _known_time_zone(cls, value: str) -> str:
        try:
            zone(value)
        except (KeyError, ValueError, OSError) as error:  # zoneinfo's errors for an unknown name
            raise ValueError(f"{value!r} is not the name of a known time zone, such as Europe/Berlin") from error
        return value


def zone(name: str) -> tzinfo:
    """The time zone with this name. Raises zoneinfo's errors. UTC needs no time zone database."""
    from zoneinfo import ZoneInfo

    return UTC if name == "UTC" else ZoneInfo(name)


def _length(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    return timedelta(hours=int(match[1] or 0), minutes=int(match[2] or 0)) if match else timedelta()
