"""What a script reads of trained weights outside of its batches as NumPy's numbers, or puts into a dataset there.
That a loss has it in it does not show, so it is told of.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.checks.findings import script_line
from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.loop.watched.origins import arrays, since_of
from dyntrain.training.worker.loop.watched.outside import BETWEEN_LOOPS, Outside, place
from dyntrain.training.worker.loop.watched.row_steps import oldest
from mxnet import gluon


def tell_of_readings(outside: Outside) -> None:
    """Another loop begins."""
    if outside.known.read is not None:
        here.loop.findings.find("DT512", outside.known.read)
        outside.known.read = None


def _reads(read: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(read)
    def notes(self: Any) -> Any:
        if (where := place()) is not None and here.loop.outside.known.made and self.size > 1:
            _note(self, where)
        return read(self)

    return notes


def _fills(fill: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fill)
    def notes(self: Any, *args: Any) -> None:
        for each in arrays(list(args)) if place() == BETWEEN_LOOPS else ():
            _note(each, BETWEEN_LOOPS)
        fill(self, *args)

    return notes


def _note(array: Any, where: int) -> None:
    """Where the script reads it, if it is not for a metric or to be printed."""
    if oldest(since_of(array)) != where:
        return
    frame = sys._getframe(2)
    shown = str(frame.f_globals.get("__name__")).startswith(("mxnet.ndarray", "mxnet.numpy", "mxnet.metric"))
    if shown or isinstance(frame.f_locals.get("self"), mx.metric.EvalMetric):
        return
    known = here.loop.outside.known
    if where == BETWEEN_LOOPS:
        known.read = known.read or script_line()
    elif here.loop.outside.at == "begins":
        here.loop.findings.find("DT513")


mx.nd.NDArray.asnumpy = _reads(mx.nd.NDArray.asnumpy)
gluon.data.ArrayDataset.__init__ = _fills(gluon.data.ArrayDataset.__init__)
