"""The batch that this thread's script has in hand, for what the script calls without knowing of a job."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet import gluon  # isort: skip

from dyntrain.training.worker.loop.batch.hand import Hand

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop


class _Here(threading.local):
    hand: Hand | None = None
    loop: TrainingLoop  # that has begun last
    in_block: int = 0  # calls of Blocks, one within another
    in_job: int = 0  # the job sums and updates: what is computed is not the script's
    in_write: int = 0  # an array is written to, which was looked at


here = _Here()
_holding: dict[int, TrainingLoop] = {}  # by threads


def hold(hand: Hand | None, loop: TrainingLoop | None = None) -> None:
    """From now on, on this thread. None: nothing is in hand."""
    here.hand = hand
    if loop is not None:
        here.loop = loop
    if hand is None:
        _holding.pop(threading.get_ident(), None)
    else:
        _holding[threading.get_ident()] = here.loop


def held_elsewhere() -> TrainingLoop | None:
    """To a thread of the script's own, which has no loop: one whose batch another thread has in hand. MXNet's threads,
    which call the backward pass of a Function of the script's, have none.
    """
    if hasattr(here, "loop") or isinstance(threading.current_thread(), threading._DummyThread):
        return None
    return next(iter(_holding.values()), None)


@contextmanager
def within(what: str) -> Iterator[None]:
    """One of those that are counted."""
    setattr(here, what, getattr(here, what) + 1)
    try:
        yield
    finally:
        setattr(here, what, getattr(here, what) - 1)


def caller(above: int) -> str:
    """The module of the lines that called the function which asks, so many calls further up."""
    return str(sys._getframe(above + 1).f_globals.get("__name__"))


def _counted(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def counts(self: Any, *args: Any, **said: Any) -> Any:
        here.in_block += 1  # not by within(): there are many of them
        try:
            return call(self, *args, **said)
        finally:
            here.in_block -= 1

    return counts


gluon.Block.__call__ = _counted(gluon.Block.__call__)
