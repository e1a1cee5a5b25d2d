"""Runs functions on background threads, and measures how long parts of their work take."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Stopwatch:
    """Measures the seconds that each part of some work takes, by the part's name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._since = time.monotonic()

    def lap(self, lap_name: str) -> None:
        lap_at = time.monotonic()
        self.laps[lap_name], self._since = lap_at - self._since, lap_at


def in_background(work: Callable[[], T]) -> Future[T]:
    """Call `work` on a daemon thread. Returns a future with the result of `work`, or its error."""
    future: Future[T] = Future()

    def run_work() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # the future raises the error in its caller
            # Future, error and frames form a reference cycle, which would keep the frames' blocks of state alive.
            traceback.clear_frames(error.__traceback__)
            future.set_exception(error)

    threading.Thread(target=run_work, name="state", daemon=True).start()
    return future
