"""A bound in clean-up holds on each Python that we install on, Debian 12's 3.11.2 too."""

from __future__ import annotations

import asyncio

import pytest
from dyntrain.training.timeouts import timeout
from waiting import patient


def test_a_bound_in_clean_up_is_a_timeout_so_that_what_comes_after_it_is_done() -> None:
    """On 3.11.2 `asyncio.timeout` ends such a clean-up, and a child that is to be killed lives on."""
    killed = []

    async def cleans_up(begun: asyncio.Event) -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            try:
                async with timeout(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                killed.append(True)

    async def course() -> None:
        begun = asyncio.Event()
        work = asyncio.create_task(cleans_up(begun))
        await begun.wait()
        work.cancel()
        await asyncio.wait([work], timeout=patient(10))
        assert work.cancelled()

    asyncio.run(course())
    assert killed == [True]


def test_who_is_cancelled_while_the_bound_passes_stays_cancelled() -> None:
    """A supervisor that is told to end takes no timeout for the answer."""
    went_on = []

    async def waits() -> None:
        me = asyncio.current_task()
        assert me is not None
        async with timeout(0):
            try:
                await asyncio.Event().wait()
            finally:
                me.cancel()
        went_on.append(True)

    async def course() -> None:
        work = asyncio.create_task(waits())
        await asyncio.wait([work], timeout=patient(10))
        assert work.cancelled()

    asyncio.run(course())
    assert went_on == []


def test_a_bound_that_passes_is_a_timeout_and_none_never_passes() -> None:
    async def course() -> None:
        with pytest.raises(TimeoutError):
            async with timeout(0.01):
                await asyncio.Event().wait()
        async with timeout(None):
            await asyncio.sleep(0)

    asyncio.run(course())
