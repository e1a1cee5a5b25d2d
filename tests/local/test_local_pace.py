"""Bounds on a slow host: stretched by what is measured, also when the load came after they were set."""

from __future__ import annotations

from dyntrain.controller.local.pace import (
    FRESH_SECONDS,
    HEADROOM,
    RECENT_SECONDS,
    REFERENCE_SECONDS,
    Deadline,
    Pace,
    seconds_of_work,
)


class Host:
    """As many times slower than the reference as a test says; its clock is the test's."""

    def __init__(self) -> None:
        self.now, self.slow, self.looks = 100.0, 1.0, 0
        self.pace = Pace(self._measure, lambda: self.now)

    def _measure(self) -> float:
        self.looks += 1
        return REFERENCE_SECONDS * self.slow


def test_a_bound_is_the_idle_hosts_with_headroom_and_ends_a_hang() -> None:
    host = Host()
    deadline = Deadline(10.0, host.pace)
    host.now += 10.0 * HEADROOM - 0.1
    assert not deadline.passed()
    host.now += 0.2
    assert deadline.passed()


def test_load_that_came_after_a_bound_was_set_stretches_it_before_it_is_said_to_have_passed() -> None:
    host = Host()
    deadline = Deadline(10.0, host.pace)
    host.slow = 6.0
    host.now += 10.0 * HEADROOM + 1.0
    assert not deadline.passed()
    host.now += 5 * 10.0 * HEADROOM
    assert deadline.passed()


def test_who_waits_for_a_bound_looks_again_when_it_was_stretched() -> None:
    host = Host()
    deadline = Deadline(10.0, host.pace, headroom=1.0)
    assert deadline.seconds_left == 10.0
    host.slow = 3.0
    host.now += 10.0
    assert (deadline.seconds_left, deadline.passed(), deadline.seconds_left) == (0.0, False, 20.0)


def test_load_of_a_moment_ago_still_counts_and_that_of_long_ago_does_not() -> None:
    """What is waited for began then."""
    host = Host()
    host.slow = 4.0
    assert host.pace.paced(1.0) == 4.0
    host.slow = 0.5
    host.now += FRESH_SECONDS + 1.0
    assert host.pace.paced(1.0) == 4.0
    host.now += RECENT_SECONDS
    assert host.pace.paced(1.0) == 1.0, "a fast host is no reason to be impatient"


def test_a_measurement_is_not_taken_again_at_once_nor_where_a_moment_counts() -> None:
    host = Host()
    assert (host.pace.slowness(measure_now=False), host.looks) == (1.0, 0)
    host.pace.slowness()
    host.pace.slowness()
    assert host.looks == 1


def test_the_work_that_is_measured_takes_a_while_on_any_host() -> None:
    """Were it to fail at once, every host would look fast."""
    assert seconds_of_work() > REFERENCE_SECONDS / 10
