"""When `leave_windows` are open, also on the days when clocks change."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from dyntrain.controller.cli.changing.policies import checked_policy
from dyntrain.controller.contract.errors import Misconfigured
from dyntrain.controller.contract.leave_windows import LeaveWindow
from dyntrain.controller.core.decisions.windows import next_opening, opening_after
from hypothesis import given, settings
from hypothesis import strategies as st

# the usual kinds, half an hour, at midnight, two hours, with the seasons turned round, and negative in winter
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Antarctica/Troll",
    "Asia/Kathmandu", "Europe/Dublin", "America/Havana",
)  # fmt: skip
QUARTERS = st.sampled_from((0, 15, 30, 45))  # by halves of an hour clocks are put forward and back
FIXED = st.builds("{} {} * * {}".format, QUARTERS, st.integers(0, 23), st.sampled_from(("*", "1-5", "SUN")))
OFTEN = st.sampled_from(("*/15 * * * *", "0 */2 * * *", "30 1-3 * * *", "*/20 2 * * *"))
ZONE = st.sampled_from(ZONES)
SUMMER_2026 = datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp()  # Berlin's clocks go from 2:00 to 3:00
WINTER_2026 = datetime(2026, 10, 25, 1, tzinfo=UTC).timestamp()  # and from 3:00 to 2:00
AROUND_A_CHANGE = st.builds(
    lambda change, by: change + by, st.sampled_from((SUMMER_2026, WINTER_2026)), st.floats(-2e5, 2e5)
)
MOMENTS = st.one_of(AROUND_A_CHANGE, st.floats(1.7e9, 2.0e9))


def window(schedule: str, duration: str = "1h", time_zone: str = "UTC") -> LeaveWindow:
    return LeaveWindow(schedule=schedule, duration=duration, time_zone=time_zone)


def at(text: str, zone: str = "Europe/Berlin") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@settings(deadline=None, max_examples=60)
@given(st.one_of(FIXED, OFTEN), ZONE, MOMENTS, st.integers(10, 6000))
def test_what_waits_waits_until_an_opening_and_not_a_second_longer(
    schedule: str, zone: str, now: float, minutes: int
) -> None:
    """At the announced time it is open, at every moment before it is not, and it stays open for just its duration."""
    one = window(schedule, f"{minutes}m", zone)
    opening = next_opening([one], now)
    opened = opening.at if opening is not None else opening_after(one, now - minutes * 60)
    assert (opened > now) == (opening is not None)
    if opening is not None:
        assert next_opening([one], opened) is None
        for share in (0.0, 0.5, 0.999):
            between = next_opening([one], now + share * (opened - now))
            assert between is None or between.at == opened
    assert opened <= now or next_opening([one], opened - 0.5) is not None
    later = opening_after(one, opened)
    closed = opened + minutes * 60
    assert next_opening([one], closed - 0.001) is None
    assert (next_opening([one], closed) is None) == (later <= closed)


@settings(deadline=None, max_examples=60)
@given(FIXED, ZONE, AROUND_A_CHANGE)
def test_a_window_opens_once_on_each_of_its_days_also_when_the_clocks_change(
    schedule: str, zone: str, start: float
) -> None:
    """Reckoned apart from the library: the wall's clock shows the time, or has been put past it that night."""
    minute, hour, _, _, weekdays = schedule.split()
    days = {"*": range(7), "1-5": range(5), "SUN": (6,)}[weekdays]
    tz = ZoneInfo(zone)
    first = datetime.fromtimestamp(start, tz).date() + timedelta(days=1)
    expected = [
        _first_moment(date.fromordinal(first.toordinal() + day), int(hour), int(minute), tz)
        for day in range(8)
        if (first + timedelta(days=day)).weekday() in days
    ]
    openings, bound = [], datetime.combine(first, datetime.min.time(), tz).timestamp() - 1
    for _ in expected:
        bound = opening_after(window(schedule, time_zone=zone), bound)
        openings.append(bound)
    assert openings == expected


def _first_moment(day: date, hour: int, minute: int, tz: ZoneInfo) -> float:
    """The first moment of the day at which the clock shows the time or, where it skips that, a later one."""
    wanted = (day, hour, minute)
    moment = datetime.combine(day, datetime.min.time(), UTC) - timedelta(hours=16)
    while True:
        local = moment.astimezone(tz)
        if (local.date(), local.hour, local.minute) >= wanted:
            return moment.timestamp()
        moment += timedelta(minutes=15)


@pytest.mark.parametrize(
    ("schedule", "now", "opens"),
    [
        ("30 2 * * *", "2026-03-29T01:00", "2026-03-29T03:00"),  # there is no 2:30 that night
        ("30 2 * * *", "2026-10-25T01:00", "2026-10-25T02:30"),  # the first of two
        ("0 22 * * 1-5", "2026-11-21T12:00", "2026-11-23T22:00"),  # not at the weekend
    ],
)
def test_a_night_in_berlin(schedule: str, now: str, opens: str) -> None:
    opening = next_opening([window(schedule, "10m", "Europe/Berlin")], at(now))
    assert opening is not None
    assert opening.at == at(opens)
    assert opening.text.startswith(opens)


def test_an_hour_is_an_hour_in_the_night_that_has_two_of_them() -> None:
    """From the first 2:30 for an hour: it is closed at the second 2:30, and does not open again."""
    one = window("30 2 * * *", "1h", "Europe/Berlin")
    first = at("2026-10-25T02:30")
    assert next_opening([one], first + 3599) is None
    opening = next_opening([one], first + 3600)
    assert opening is not None
    assert opening.at == at("2026-10-26T02:30")
    second = WINTER_2026 + 1800  # 2:30 once more
    assert opening_after(window("45 2 * * *", "1h", "Europe/Berlin"), second) == at("2026-10-26T02:45")


def test_of_several_windows_any_that_is_open_is_enough_and_the_next_is_told() -> None:
    windows = [window("0 22 * * *"), window("0 12 * * *")]
    assert next_opening(windows, at("2026-11-22T12:30", "UTC")) is None
    opening = next_opening(windows, at("2026-11-22T13:30", "UTC"))
    assert opening is not None
    assert opening.text == "2026-11-22T22:00+00:00 (UTC)"
    assert next_opening([], 0.0) is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"schedule": "0 22 * *"}, "five fields"),
        ({"schedule": "@daily"}, "five fields"),
        ({"schedule": "61 22 * * *"}, "Bad minute"),
        ({"schedule": "0 0 31 2 *"}, "day-of-month"),
        ({"schedule": "0 0 * 2 MON#5,TUE#5 *"}, "five fields"),
        ({"duration": "9m"}, "ten minutes"),
        ({"duration": "8"}, "8h, 90m"),
        ({"time_zone": "Mars/Olympus"}, "known time zone"),
        ({"time_zone": "../../etc/passwd"}, "known time zone"),
        ({"time_zone": "Europe"}, "known time zone"),
        ({"length": "8h"}, "leave_windows.0.length"),
    ],
)
def test_a_window_that_is_none_is_refused_with_its_field(wrong: dict[str, str], message: str) -> None:
    fields = {"schedule": "0 22 * * *", "duration": "8h", **wrong}
    with pytest.raises(Misconfigured, match=message):
        checked_policy({"cluster": "demo", "leave_windows": [fields]})


def test_a_pool_whose_machines_aws_takes_with_their_reservation_may_not_wait() -> None:
    policy = {
        "cluster": "demo",
        "groups": ["demo-workers"],
        "leave_windows": [{"schedule": "0 22 * * *", "duration": "8h"}],
        "pool": {"instance_type": "p5.48xlarge", "capacity_reservations": ["cr-1"]},
    }
    with pytest.raises(Misconfigured, match="capacity_reservations"):
        checked_policy(policy)
    kept = checked_policy({**policy, "pool": {"instance_type": "p5.48xlarge"}})
    assert checked_policy(json.loads(kept.model_dump_json())) == kept
