"""What this thread's script is at, for what it calls without knowing of a job."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dyntrain.training.worker.loop.batch.current_batch import CurrentBatch

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.instrument import Listeners


class _ThreadContext(threading.local):
    current: CurrentBatch | None = None
    listeners: Listeners | None = None  # of the loop over epochs that it is in
    in_block: int = 0  # calls of Blocks, one within another
    in_job: int = 0  # the job sums and updates: what is computed is not the script's
    in_write: int = 0  # an array is written to, of which listeners know


thread_context = _ThreadContext()


@contextmanager
def within(what: str) -> Iterator[None]:
    """One of those that are counted."""
    setattr(thread_context, what, getattr(thread_context, what) + 1)
    try:
        yield
    finally:
        setattr(thread_context, what, getattr(thread_context, what) - 1)
