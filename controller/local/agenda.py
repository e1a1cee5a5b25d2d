"""The agenda: one thread that runs delayed actions of the embedded cloud (an emulation of AWS) at the actions' due
times.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import traceback
from collections.abc import Callable

Action = Callable[[], None]


class Agenda:
    """Run delayed actions one after another, so each action must be short. If an action raises an exception, the
    exception is logged, and later actions still run.
    """

    def __init__(self, log_error: Callable[[str], None]) -> None:
        self._log_error = log_error
        self._due: list[tuple[float, int, Action]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run_actions, name="agenda", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Drop the pending actions, and wait, for at most 10 seconds, until the running action has ended."""
        with self._changed:
            self._stopped = True
            self._due.clear()
            self._changed.notify_all()
        self._thread.join(10.0)

    def run_after(self, seconds: float, action: Action) -> None:
        """Run `action` once, `seconds` after this call. After a call of `stop`, new actions are ignored."""
        with self._changed:
            if not self._stopped:
                heapq.heappush(self._due, (time.monotonic() + max(0.0, seconds), next(self._order), action))
                self._changed.notify_all()

    def _next_action(self) -> Action | None:
        with self._changed:
            while not self._stopped:
                if not self._due:
                    self._changed.wait()
                elif (wait_seconds := self._due[0][0] - time.monotonic()) > 0:
                    self._changed.wait(wait_seconds)
                else:
                    return heapq.heappop(self._due)[2]
            return None

    def _run_actions(self) -> None:
        while (action := self._next_action()) is not None:
            try:
                action()
            except Exception:  # noqa: BLE001 - an action may raise anything, and later actions must still run
                self._log_error(traceback.format_exc())
