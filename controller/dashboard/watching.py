"""Reads the page's data repeatedly while at least one page is open. The open pages share each reading of the data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from anyio import to_thread

State = Mapping[str, Any]  # the data that the pages show


class Watch:  # reads data for all open pages
    """A repeated reading of data that all open pages share. The function `read` is called in a thread, and is called
    again `pause_seconds` after each return. An error in `read` ends the streams to all open pages. When the pages
    reconnect after an error, reading starts again.
    """

    def __init__(self, read: Callable[[], State], pause_seconds: float) -> None:
        self._read, self._pause_seconds = read, pause_seconds
        self._viewer_count, self._state_number = 0, 0
        self._state: State = {}
        self._changed = asyncio.Event()  # set once, for the current waiters; later waiters get a new event
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    def end(self) -> None:
        """End the streams to all open pages."""
        self._ended = True
        self._wake()

    async def states(self) -> AsyncIterator[State]:
        """Yield the current state, and then the latest state after each change. A page that receives slowly misses
        intermediate states.
        """
        self._viewer_count += 1
        if self._task is None or self._task.done():
            self._state_number = 0  # the last viewer's state is old
            self._task = asyncio.create_task(self._poll())
            self._task.add_done_callback(lambda _task: self._wake())
        polling_task = self._task
        last_state_number = 0
        try:
            while True:
                while self._state_number <= last_state_number and not self._ended:
                    if polling_task.done():
                        polling_task.result()
                    await self._changed.wait()
                if self._ended:
                    return
                last_state_number, state = self._state_number, self._state
                yield state
        finally:
            self._viewer_count -= 1
            if not self._viewer_count and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _poll(self) -> None:  # reads the data repeatedly
        while True:
            state = await to_thread.run_sync(self._read, abandon_on_cancel=True)
            if not self._state_number or state != self._state:
                self._state, self._state_number = state, self._state_number + 1
                self._wake()
            await asyncio.sleep(self._pause_seconds)

    def _wake(self) -> None:  # wakes the streams that wait for a change
        self._changed.set()
        self._changed = asyncio.Event()
