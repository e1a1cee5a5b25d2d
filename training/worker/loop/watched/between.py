"""Nets of no trainer that a script writes to between its batches, as a target network that is set where an epoch ends.

Who joins has not done that, and who comes in the middle of an epoch may have done it with later weights. So where such
a net has a part in a batch, the script is told, unless the job keeps it.
"""

from __future__ import annotations

import threading
from typing import Any

from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.loop.watched.made_anew import was_set


class _Between(threading.local):
    """Of one job: a process that trains one after another would keep the weights of all of them."""

    def __init__(self) -> None:
        self.membership: Any = None  # the job's
        self.given: dict[int, tuple[Any, Any]] = {}  # by ids: weights that the script was given, their parameter

    def of_this_job(self) -> dict[int, tuple[Any, Any]]:
        if self.membership is not here.loop.membership:
            self.membership, self.given = here.loop.membership, {}
        return self.given


_between = _Between()


def _in_loop() -> bool:
    """Whether one has begun, and this is a line of the script's outside of its nets."""
    return hasattr(here, "loop") and not here.in_block


def gave(param: Any, arrays: list[Any]) -> None:
    """To the script, which may write to them."""
    if _in_loop():
        _between.of_this_job().update((id(each), (each, param)) for each in arrays)


def wrote(param: Any) -> None:
    if _in_loop():
        was_set(param)
        here.loop.outside.wrote(param)
        here.loop.undo.script_sets(param)


def wrote_to(array: Any) -> None:
    """If it is a weight."""
    if hasattr(here, "loop") and (found := _between.of_this_job().get(id(array))):
        wrote(found[1])


def set_between(param: Any) -> bool:
    """Since the loop began. What an earlier one has set is refused as made outside of batches."""
    return param in here.loop.outside.written
