"""Measure how slow this host is at the moment, to extend time limits while the host is busy.

All time limits of the tests also use this module. Each time limit is generous for an idle host, and is multiplied by
this host's slowness. The purpose of a time limit is to end a hang, not to judge the speed of the code.

Slowness is the time in which a process starts and imports some modules, divided by the same process's time on an idle
reference host. The measured process runs at low priority, as the machines of the embedded cloud do.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable

MACHINE_NICENESS = 5  # so that training does not delay the handlers, which have processors of their own in AWS
MEASURED_COMMAND = (
    sys.executable,
    "-S",
    "-c",
    f"import os; os.nice({MACHINE_NICENESS}); import asyncio, ssl, email.message",
)
REFERENCE_SECONDS = 0.15  # seconds that MEASURED_COMMAND takes on the idle reference host
HEADROOM = 2.0  # factor for load that changes during a wait
FRESH_SECONDS = 20.0  # seconds for which a measurement counts as current
RECENT_SECONDS = 180.0  # seconds for which a measurement is kept, for waits that began then
LONGEST_SECONDS = 60.0  # seconds after which a measurement is cut off


class Pace:
    """Measures how much slower this host is than the idle reference host. The function `measure` returns the seconds
    that MEASURED_COMMAND takes, and is called at most once in FRESH_SECONDS. Any thread may use a `Pace`.
    """

    def __init__(self, measure: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._measure, self.clock = measure, clock
        self._measured: list[tuple[float, float]] = []
        self._reports: list[tuple[float, float]] = []
        self._lock = threading.Lock()

    def slowness(self, measure_now: bool = True) -> float:
        """The greatest recent slowness of this host, as a factor compared with the idle reference host; at least 1.
        With `measure_now` false, nothing is measured, so the call is quick.
        """
        with self._lock:
            if measure_now and (not self._measured or self.clock() - self._measured[-1][0] > FRESH_SECONDS):
                factor = self._measure() / REFERENCE_SECONDS
                self._measured.append((self.clock(), factor))
            self._measured, self._reports = self._recent_readings(self._measured), self._recent_readings(self._reports)
            return max([1.0, *(factor for _, factor in (*self._measured, *self._reports))])

    def record_slowness(self, factor: float) -> None:
        """Record a slowness that another process measured on this host."""
        with self._lock:
            self._reports = [*self._recent_readings(self._reports), (self.clock(), factor)]

    def _recent_readings(self, readings: list[tuple[float, float]]) -> list[tuple[float, float]]:
        return [
            (measured_at, factor) for measured_at, factor in readings if self.clock() - measured_at < RECENT_SECONDS
        ]

    def patient(self, seconds: float) -> float:
        """The time limit, in seconds on this host, for a wait that should take at most `seconds` on an idle host."""
        return seconds * HEADROOM * self.slowness()

    def paced(self, seconds: float) -> float:
        """The duration on this host that corresponds to `seconds` on an idle host."""
        return seconds * self.slowness()


def seconds_of_work() -> float:
    started_at = time.monotonic()
    with contextlib.suppress(subprocess.TimeoutExpired):  # the time until the cut-off is the measurement
        subprocess.run(MEASURED_COMMAND, stdin=subprocess.DEVNULL, timeout=LONGEST_SECONDS, check=False)
    return time.monotonic() - started_at


THIS_HOST = Pace(seconds_of_work)
slowness, patient, paced = THIS_HOST.slowness, THIS_HOST.patient, THIS_HOST.paced


class Deadline:
    """A time limit that is extended on a slow host. `passed` measures the slowness again before returning True, because
    the host may have become busier since the last measurement.
    """

    def __init__(self, seconds: float, pace: Pace = THIS_HOST, headroom: float = HEADROOM) -> None:
        self._pace, self._seconds, self._began = pace, seconds * headroom, pace.clock()
        self.bound = self._seconds * pace.slowness(measure_now=False)

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline, judged by the measurements of slowness so far."""
        return max(0.0, self._began + self.bound - self._pace.clock())

    def passed(self) -> bool:
        if not self.seconds_left:
            self.bound = max(self.bound, self._pace.paced(self._seconds))
        return not self.seconds_left
