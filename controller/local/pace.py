"""How slow this host is at the moment, for time limits: a cloud's machines are never as busy as a laptop or a shared
builder can be.

Every limit in the tests uses it too: written for an idle host, generously, and stretched by how slow this one is. A
limit ends a hang; none is a verdict on speed.

The measure is how long a process takes to start and import a little, against the idle host for which the limits are
written. It runs at low priority, as the machines of the embedded cloud do.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable

BEHIND_THE_CLOUD = 5  # niceness of machines: AWS has processors of its own, so training must not hold up the handlers
WORK = (sys.executable, "-S", "-c", f"import os; os.nice({BEHIND_THE_CLOUD}); import asyncio, ssl, email.message")
REFERENCE = 0.15  # seconds, of WORK on that host
HEADROOM = 2.0  # load changes during a wait
FRESH = 20.0  # a measurement counts as current this long
RECENT = 180.0  # and is remembered this long: a wait may have begun then
LONGEST = 60.0  # a host on which WORK takes longer is as good as hung


class Pace:
    """Safe to use from any thread. `measure` gives the seconds that WORK takes; it is asked once in FRESH seconds at
    most.
    """

    def __init__(self, measure: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._measure, self.clock = measure, clock
        self._measured: list[tuple[float, float]] = []
        self._noted: list[tuple[float, float]] = []
        self._lock = threading.Lock()

    def slowness(self, look: bool = True) -> float:
        """How many times slower than the reference this host was at its slowest recently; at least 1. With `look` false
        it does not measure, which takes a moment.
        """
        with self._lock:
            if look and (not self._measured or self.clock() - self._measured[-1][0] > FRESH):
                factor = self._measure() / REFERENCE
                self._measured.append((self.clock(), factor))
            self._measured, self._noted = self._recent(self._measured), self._recent(self._noted)
            return max([1.0, *(factor for _, factor in (*self._measured, *self._noted))])

    def note(self, factor: float) -> None:
        """Note how slow another process measured this host; it is measured here all the same."""
        with self._lock:
            self._noted = [*self._recent(self._noted), (self.clock(), factor)]

    def _recent(self, readings: list[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(at, factor) for at, factor in readings if self.clock() - at < RECENT]

    def patient(self, seconds: float) -> float:
        """An upper bound for waiting; it costs nothing when all is well."""
        return seconds * HEADROOM * self.slowness()

    def paced(self, seconds: float) -> float:
        """A duration to wait in full."""
        return seconds * self.slowness()


def seconds_of_work() -> float:
    began = time.monotonic()
    with contextlib.suppress(subprocess.TimeoutExpired):  # the time so far is measure enough
        subprocess.run(WORK, stdin=subprocess.DEVNULL, timeout=LONGEST, check=False)
    return time.monotonic() - began


HERE = Pace(seconds_of_work)
slowness, patient, paced = HERE.slowness, HERE.patient, HERE.paced


class Deadline:
    """A deadline. `passed` measures the host once more before it returns true: the load may have come after the
    deadline was set.
    """

    def __init__(self, seconds: float, pace: Pace = HERE, headroom: float = HEADROOM) -> None:
        self._pace, self._seconds, self._began = pace, seconds * headroom, pace.clock()
        self.bound = self._seconds * pace.slowness(look=False)

    @property
    def left(self) -> float:
        """Seconds until it is worth asking whether it has passed."""
        return max(0.0, self._began + self.bound - self._pace.clock())

    def passed(self) -> bool:
        if not self.left:
            self.bound = max(self.bound, self._pace.paced(self._seconds))
        return not self.left
