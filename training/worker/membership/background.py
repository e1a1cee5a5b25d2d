"""Work beside the training thread, and how long its parts took."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Stopwatch:
    """Seconds between laps, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._since = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name], self._since = now - self._since, now


def in_background(work: Callable[[], T]) -> Future[T]:
    """Runs `work` on a daemon thread; its result or error is the future's."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # handed to whoever asks for the result
            # Future, error and frames are a cycle, which would keep the frames' blocks of state in use for long.
            traceback.clear_frames(error.__traceback__)
            future.set_exception(error)

    threading.Thread(target=run, name="state", daemon=True).start()
    return future
