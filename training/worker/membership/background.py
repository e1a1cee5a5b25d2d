"""Runs work in parallel to the training thread, and measures how long parts of work take."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Stopwatch:
    """Measures the seconds between laps, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._since = time.monotonic()

    def lap(self, lap_name: str) -> None:
        lap_at = time.monotonic()
        self.laps[lap_name], self._since = lap_at - self._since, lap_at


def in_background(work: Callable[[], T]) -> Future[T]:
    """Run `work` on a daemon thread. Returns a future with the result or error of `work`."""
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
