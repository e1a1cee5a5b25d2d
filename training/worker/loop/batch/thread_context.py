"""State of the script in this thread, for functions that replace MXNet's functions and so get no job as an argument."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dyntrain.training.worker.loop.batch.current_batch import CurrentBatch

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.instrument import Listeners


class _ThreadContext(threading.local):
    current: CurrentBatch | None = None  # the script's current batch
    listeners: Listeners | None = None  # of the thread's loop over epochs
    in_block: int = 0  # depth of nested calls of Blocks
    in_job: int = 0  # above 0 while the job sums and updates: the computation is not the script's
    in_write: int = 0  # above 0 during a write that listeners were called for


thread_context = _ThreadContext()


@contextmanager
def within(counter: str) -> Iterator[None]:
    """Within the `with` block, increment this thread's counter with this name, such as `in_job`."""
    setattr(thread_context, counter, getattr(thread_context, counter) + 1)
    try:
        yield
    finally:
        setattr(thread_context, counter, getattr(thread_context, counter) - 1)
