"""What a script makes of trained weights between two loops over epochs: pseudo-labels, features, a copy of the net as
a teacher, how much each weight counts (EWC).

Who begins in the second loop runs these lines with the weights that it began with. So what is made there of weights,
of their gradients or of what a net gives is followed as a batch's numbers are (`origins`), as older than every step.
Where it has a part in a later loop's loss, and the job does not keep it, the script is refused; where it goes on as
NumPy's numbers, it is told of once the next loop begins.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.loop.watched.origins import arrays, put, since_of
from dyntrain.training.worker.loop.watched.row_steps import NEVER, oldest
from dyntrain.training.worker.state.training_state import TrainingState
from mxnet import gluon

BETWEEN = -1  # before every step
MADE_BETWEEN = (
    "the loss of step {now} has something in it that was made of trained weights, or of their gradients, between two "
    "loops over epochs: a worker that begins in this loop makes it of the weights that it began with. Between the "
    "loops: kept = job.keep({{'y': ...}}) of it, or job.keep(net) of a net; and in the loop kept['y'] as it is there"
)
READ = (
    "%s, line %d: trained weights, or what is made of them, are read as NumPy's numbers or go into a dataset, and "
    "another loop over epochs follows: a worker that begins in that one reads those that it began with. Where that "
    "loop uses them: kept = job.keep({'y': mx.nd.array(...)}) above it, and in it kept['y'] as it is there"
)
LIBRARIES = ("mxnet.", "dyntrain.", "gluoncv.", "gluonnlp.")
log = logging.getLogger(__name__)


class _Seen(threading.local):
    read: tuple[str, int] | None = None  # the first line of the script's that does
    made = False  # anything, by this job


_seen = _Seen()


def _ended() -> TrainingState | None:
    """That of the loop which the script has behind it, where it has not come to another one."""
    loop = getattr(here, "loop", None)
    return loop.state if loop is not None and loop.has_ended else None


def forget_all() -> None:
    """Another job begins."""
    _seen.read, _seen.made = None, False


def begin(state: TrainingState) -> None:
    """The next loop: its trainers' weights and what the job keeps are the same on all workers, whatever they were made
    of.
    """
    for param in [*state.parameters, *state.kept.parameters]:
        for each in (*(param._data or ()), *(param._grad or ())):
            put(each, NEVER, into=True)
    for found in state.kept.arrays():
        for each in found.copies:
            put(each, NEVER, into=True)
    if _seen.read is not None:
        log.warning(READ, *_seen.read)
        _seen.read = None


def refuse() -> None:
    """At the next sum, together with all workers."""
    here.loop.refusal = here.loop.refusal or MADE_BETWEEN.format(now=here.loop.position.step)


def _mark(made: Any) -> None:
    _seen.made = True
    for each in arrays(made):
        put(each, BETWEEN, into=False)


def _is_trained(param: Any, state: TrainingState) -> bool:
    return any(param is each for each in state.parameters)


def _has_trained(block: Any, state: TrainingState) -> bool:
    trained = {id(param) for param in state.parameters}
    return any(id(param) in trained for param in block.collect_params().values())


def _calls(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def marks(self: Any, *args: Any, **said: Any) -> Any:
        made = call(self, *args, **said)
        if here.in_block == 0 and (state := _ended()) is not None and _has_trained(self, state):
            _mark(made)
        return made

    return marks


def _gives(give: Callable[..., Any]) -> Callable[..., Any]:
    """A weight or its gradient: to the script; or in a batch to a block, whose operators may not be seen."""

    @functools.wraps(give)
    def marks(self: Any, *args: Any, **said: Any) -> Any:
        made = give(self, *args, **said)
        if here.hand is not None:
            if _seen.made and here.in_block and any(oldest(since_of(each)) == BETWEEN for each in arrays(made)):
                refuse()
        elif here.in_block == 0 and (state := _ended()) is not None and _is_trained(self, state):
            _mark(made)
        return made

    return marks


def _reads(read: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(read)
    def notes(self: Any) -> Any:
        if _ended() is not None and here.in_block == 0 and self.size > 1:
            _note(self)
        return read(self)

    return notes


def _fills(fill: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fill)
    def notes(self: Any, *args: Any) -> None:
        for each in arrays(list(args)) if _ended() is not None else ():
            _note(each)
        fill(self, *args)

    return notes


def _note(array: Any) -> None:
    """Where the script reads it, if it is not for a metric or to be printed."""
    if _seen.read is not None or oldest(since_of(array)) != BETWEEN:
        return
    frame = sys._getframe(2)
    shown = str(frame.f_globals.get("__name__")).startswith(("mxnet.ndarray", "mxnet.numpy"))
    if shown or isinstance(frame.f_locals.get("self"), mx.metric.EvalMetric):
        return
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(LIBRARIES):
        frame = frame.f_back
    _seen.read = frame.f_code.co_filename, frame.f_lineno


gluon.Block.__call__ = _calls(gluon.Block.__call__)
for _name in ("data", "list_data", "grad", "list_grad"):
    setattr(gluon.Parameter, _name, _gives(getattr(gluon.Parameter, _name)))
mx.nd.NDArray.asnumpy = _reads(mx.nd.NDArray.asnumpy)
gluon.data.ArrayDataset.__init__ = _fills(gluon.data.ArrayDataset.__init__)
