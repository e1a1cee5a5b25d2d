"""A loop whose time passes only while nobody has anything to do, and then at once: pauses of minutes cost nothing, and
each is exactly as long as it was asked to be.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Coroutine
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    now = 1000.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everybody waits for ever"
        self.now += timeout
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = _Selector()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


def lived(scenario: Coroutine[Any, Any, T], *modules: ModuleType) -> T:
    """`modules` look at this clock too, and draw the middle of what they draw."""
    loop = _Loop()
    with contextlib.ExitStack() as stack:
        for module in modules:
            for name, stand_in in (("time", SimpleNamespace(monotonic=loop.time, time=loop.time)), ("random", _Middle)):
                if hasattr(module, name):
                    stack.enter_context(patch.object(module, name, stand_in))
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(scenario)


_Middle = SimpleNamespace(random=lambda: 0.5)


def seconds() -> float:
    """Since the scenario began."""
    return round(asyncio.get_running_loop().time() - _Selector.now, 3)
