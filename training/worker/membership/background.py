"""Work in parallel to the training thread, and timing of its parts."""

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

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name], self._since = now - self._since, now


def in_background(work: Callable[[], T]) -> Future[T]:
    """Run `work` on a daemon thread; return a future with its result or error."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # the future raises the error in its caller
            # Future, error and frames form a reference cycle, which would keep the frames' blocks of state alive.
            traceback.clear_frames(error.__traceback__)
            future.set_exception(error)

    threading.Thread(target=run, name="state", daemon=True).start()
    return future
