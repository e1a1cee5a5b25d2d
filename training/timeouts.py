"""`asyncio.timeout` that also works during clean-up after a cancellation.

Python 3.11.0 to 3.11.2 (Debian 12 has 3.11.2) raise CancelledError in place of TimeoutError there, so what follows a
timeout, such as killing a process that does not end, would never run: python/cpython issue 102780.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def timeout(seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
    """Raise TimeoutError after `seconds`; None: never. A task that is cancelled meanwhile stays cancelled."""
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    bound = asyncio.timeout(seconds)
    try:
        async with bound:
            yield bound
    except asyncio.CancelledError as error:
        if bound.expired() and task.cancelling() <= before:
            raise TimeoutError from error
        raise
