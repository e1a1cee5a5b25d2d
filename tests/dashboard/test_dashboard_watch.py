"""Reading while somebody looks: once for all who look, and not for nobody."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

import pytest
from dyntrain.controller.dashboard.watching import Watch
from dyntrain.controller.local.pace import patient

T = TypeVar("T")


class Counted:
    """A state that is another one with each reading."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> dict[str, Any]:
        self.count += 1
        return {"reading": self.count}


async def soon(what: Awaitable[T]) -> T:
    return await asyncio.wait_for(what, patient(30))


class Stepped(Counted):
    """Reads when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Semaphore(0)

    def __call__(self) -> dict[str, Any]:
        assert self.let.acquire(timeout=patient(60))
        return super().__call__()


def test_all_who_look_share_the_readings_and_who_is_slow_misses_those_between() -> None:
    async def story() -> None:
        read = Stepped()
        watch = Watch(read, 0.0)
        quick, slow = watch.states(), watch.states()
        read.let.release()
        assert await soon(asyncio.gather(anext(quick), anext(slow))) == [{"reading": 1}] * 2
        for number in (2, 3, 4):
            read.let.release()
            assert await soon(anext(quick)) == {"reading": number}
        assert await soon(anext(slow)) == {"reading": 4}
        await slow.aclose()
        await quick.aclose()
        read.let.release(2)  # for the thread that waits still

    asyncio.run(story())


def test_nothing_is_read_for_nobody_and_the_next_who_looks_is_shown_what_is_read_then() -> None:
    async def story() -> None:
        read = Counted()
        watch = Watch(read, 0.0)
        first = watch.states()
        await soon(anext(first))
        await first.aclose()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await soon(asyncio.wait(others))
        before = read.count
        again = watch.states()
        assert (await soon(anext(again)))["reading"] > before
        await again.aclose()

    asyncio.run(story())


def test_a_state_that_stays_the_same_is_told_once_and_the_end_ends_all_views() -> None:
    async def story() -> None:
        readings = itertools.count()
        often = asyncio.Event()
        loop = asyncio.get_running_loop()

        def read() -> dict[str, Any]:
            if next(readings) == 5:
                loop.call_soon_threadsafe(often.set)
            return {"problem": ""}

        watch = Watch(read, 0.0)
        states = watch.states()
        await soon(anext(states))
        waiting = asyncio.ensure_future(anext(states))
        await soon(often.wait())
        assert not waiting.done()
        watch.end()
        with pytest.raises(StopAsyncIteration):
            await soon(waiting)

    asyncio.run(story())


def test_what_a_reading_raises_ends_the_views_and_the_next_one_tries_anew() -> None:
    async def story() -> None:
        answers: list[Any] = [RuntimeError("a fault of ours"), {"problem": ""}]

        def read() -> dict[str, Any]:
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(answer, Exception):
                raise answer
            return dict(answer)

        watch = Watch(read, 0.0)
        views: list[AsyncIterator[Any]] = [watch.states(), watch.states()]
        ended = await soon(asyncio.gather(*(anext(view) for view in views), return_exceptions=True))
        assert [str(error) for error in ended] == ["a fault of ours"] * 2
        again = watch.states()
        assert await soon(anext(again)) == {"problem": ""}
        await again.aclose()

    asyncio.run(story())
