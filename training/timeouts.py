"""A version of `asyncio.timeout` that also works during clean-up after a task was cancelled.

During clean-up, `asyncio.timeout` of Python 3.11.0 to 3.11.2 (the version of Debian 12) raises CancelledError in place
of TimeoutError (python/cpython issue 102780). Because of the CancelledError, code after a timeout, such as killing a
process that does not exit, would never run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def timeout(seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
    """Raise TimeoutError after `seconds`, or never if `seconds` is None.

    A task that is cancelled within the `with` block stays cancelled.
    """
    task = asyncio.current_task()
    assert task is not None
    earlier_cancellations = task.cancelling()
    timeout_context = asyncio.timeout(seconds)
    try:
        async with timeout_context:
            yield timeout_context
    except asyncio.CancelledError as error:
        if timeout_context.expired() and task.cancelling() <= earlier_cancellations:
            raise TimeoutError from error
        raise
