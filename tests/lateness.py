"""How late this process wakes up: a thread that naps all the while, as nobody can be late for less than 20 ms.

A machine that stood still for a while tells so nowhere else: what is measured after it is as fast as ever. So it is
told to the pace that all bounds go by, and a test that fails says it.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable

import pytest
from dyntrain.controller.local.pace import RECENT_SECONDS, THIS_HOST, Pace, slowness

NAP = 0.02
STILL = 0.1  # seconds too late; below that somebody else had the processor for a moment
WINDOW = 5.0
MOST = 10.0  # a window that was slept through says no more than this


class Lateness:
    def __init__(
        self,
        pace: Pace,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pace, self._clock, self._sleep = pace, clock, sleep
        self._began, self._late = clock(), 0.0  # of the present window
        self._stills: tuple[tuple[float, float], ...] = ()  # (when it woke up, how late); replaced, never changed

    def nap(self) -> None:
        lay_down = self._clock()
        self._sleep(NAP)
        now = self._clock()
        late = max(0.0, now - lay_down - NAP)
        self._late += late
        if late > STILL:
            recent = (still for still in self._stills if now - still[0] < RECENT_SECONDS)
            self._stills = (*recent, (now, late))
        if now - self._began >= WINDOW:
            awake = max(now - self._began - self._late, NAP)
            self._pace.record_slowness(min(MOST, (now - self._began) / awake))
            self._began, self._late = now, 0.0

    def stood_still(self, since: float) -> float:
        """Seconds in which this process did not come to its turn; those of the last RECENT_SECONDS are remembered."""
        return sum(min(late, now - since) for now, late in self._stills if now > since)

    def start(self) -> None:
        threading.Thread(target=self._for_ever, name="lateness", daemon=True).start()

    def _for_ever(self) -> None:
        while True:
            self.nap()


LATENESS = Lateness(THIS_HOST)
BEGAN = pytest.StashKey[float]()
PATIENCE = "patience"


def begin(item: pytest.Item) -> None:
    item.stash[BEGAN] = time.monotonic()


def tell(report: pytest.TestReport, item: pytest.Item) -> None:
    """Every report carries the patience of its moment, as it may come from another process."""
    patience = slowness(measure_now=False)
    report.user_properties.append((PATIENCE, patience))
    if report.failed:
        still = LATENESS.stood_still(item.stash.get(BEGAN, time.monotonic()))
        sentence = f"the machine stood still for {still:.1f} s in this test; patience {patience:.1f}"
        report.sections.append(("how slow the machine was", sentence))


def sum_up(terminal: pytest.TerminalReporter) -> None:
    values = [value for reports in terminal.stats.values() for report in reports for value in patience_of(report)]
    if values:
        terminal.write_line(f"patience: median {statistics.median(values):.1f}, most {max(values):.1f}")


def patience_of(report: object) -> list[float]:
    properties = getattr(report, "user_properties", [])
    return [float(value) for key, value in properties if key == PATIENCE]
