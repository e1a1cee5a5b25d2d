"""What a script makes of trained weights outside of its batches: pseudo-labels, features, a copy of the net as a
teacher, how much each weight counts (EWC).

Who begins in the second of two loops runs the lines between them with the weights that it began with, and who joins
within an epoch those where the epoch begins with later ones. So what is made there of what a net gives (between loops
of weights and their gradients, too) is followed as a batch's numbers are (`origins`), as older than every step. Where
it has a part in a loss, and the job does not keep it, the script is refused; where it goes on as NumPy's numbers, it is
told of.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any, Literal
from weakref import WeakKeyDictionary

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.loop.watched.origins import arrays, put, since_of
from dyntrain.training.worker.loop.watched.row_steps import NEVER, oldest
from dyntrain.training.worker.state.training_state import TrainingState
from mxnet import gluon

BETWEEN_LOOPS, BESIDE_AN_EPOCH = -2, -1  # before every step
MADE = {
    BETWEEN_LOOPS: "the loss of step %d has something in it that was made of trained weights, or of their gradients, "
    "between two loops over epochs: a worker that begins in this loop makes it of the weights that it began with. "
    "Between the loops: kept = job.keep({'y': ...}) of it, or job.keep(net) of a net; and in the loop kept['y'] as it "
    "is there",
    BESIDE_AN_EPOCH: "the loss of step %d has something in it that a net gave where an epoch began or ended: a worker "
    "that joins within the epoch makes it of later weights, or has none. Above the loop: kept = job.keep({'y': ...}); "
    "where the epoch begins: if not epoch.resumed: kept['y'][:] = ...; and in the batches kept['y'] as it is there. Or "
    "job.epochs(..., changes='epoch')",
}
READ = {
    BETWEEN_LOOPS: "%s, line %d: trained weights, or what is made of them, are read as NumPy's numbers or go into a "
    "dataset, and another loop over epochs follows: a worker that begins in that one reads those that it began with. "
    "Where that loop uses them: kept = job.keep({'y': mx.nd.array(...)}) above it, and in it kept['y'] as it is there",
    BESIDE_AN_EPOCH: "%s, line %d: where an epoch begins, what a net gives is read as NumPy's numbers: a worker that "
    "joins within the epoch reads what later weights give. Where the batches use them: above the loop kept = "
    "job.keep({'y': ...}), here if not epoch.resumed: kept['y'][:] = ..., and in the batches kept['y'] as it is "
    "there; or job.epochs(..., changes='epoch')",
}
LIBRARIES = ("mxnet.", "dyntrain.", "gluoncv.", "gluonnlp.")
log = logging.getLogger(__name__)


class _Seen(threading.local):
    """By one job."""

    read: tuple[str, int] | None = None  # between loops: the first line of the script's that does
    made = False  # anything
    told = False  # of what is read where an epoch begins


_seen = _Seen()


def forget_outside() -> None:
    """Another job begins."""
    _seen.read, _seen.made, _seen.told = None, False, False


class Outside:
    """Of one loop: where the script is outside of its batches, and which weights have trained by then."""

    def __init__(self, before: Outside | None) -> None:
        self.at: Literal["begins", "ends", "over"] | None = None  # its epoch, or the loop
        self.trained: dict[int, Any] = dict(before.trained) if before else {}  # parameters by ids, of all loops so far
        self._trains: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()  # by blocks

    def begins(self, state: TrainingState) -> None:
        """An epoch."""
        self.at = "begins"
        self._learn(state)

    def ends(self) -> None:
        self.at = "ends"

    def inside(self) -> None:
        self.at = None

    def over(self, state: TrainingState) -> None:
        """The loop; also where this worker came too late for it, and went past."""
        self.at = "over"
        self._learn(state)

    def _learn(self, state: TrainingState) -> None:
        """What is frozen now may have trained before."""
        self.trained.update((id(param), param) for param in state.parameters if param.grad_req != "null")
        self._trains.clear()

    def trains_any_of(self, block: Any) -> bool:
        if block not in self._trains:
            self._trains[block] = any(id(param) in self.trained for param in block.collect_params().values())
        return self._trains[block]


def settle(state: TrainingState) -> None:
    """A loop or an epoch begins: its trainers' weights and what the job keeps are the same on all workers, whatever
    they were made of.
    """
    if not _seen.made:
        return
    for param in [*state.parameters, *state.kept.parameters]:
        for each in (*(param._data or ()), *(param._grad or ())):
            put(each, NEVER, into=True)
    for found in state.kept.arrays():
        for each in found.copies:
            put(each, NEVER, into=True)


def tell_of_readings() -> None:
    """Another loop begins."""
    if _seen.read is not None:
        log.warning(READ[BETWEEN_LOOPS], *_seen.read)
        _seen.read = None


def refuse(made: int) -> None:
    """At the next sum, together with all workers."""
    here.loop.refusal = here.loop.refusal or MADE[made] % here.loop.position.step


def _place() -> int | None:
    """Of a line of the script's outside of its batches and nets."""
    loop = getattr(here, "loop", None)
    if loop is None or here.hand is not None or here.in_block or here.in_job:
        return None
    if loop.outside.at == "over":
        return BETWEEN_LOOPS
    return BESIDE_AN_EPOCH if loop.outside.at and loop.follows else None


def _mark(made: Any, place: int) -> None:
    _seen.made = True
    for each in arrays(made):
        put(each, place, into=False)


def _calls(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def marks(self: Any, *args: Any, **said: Any) -> Any:
        made = call(self, *args, **said)
        if (place := _place()) is not None and here.loop.outside.trains_any_of(self):
            _mark(made, place)
        return made

    return marks


def _gives(give: Callable[..., Any]) -> Callable[..., Any]:
    """A weight or its gradient: to the script; or in a batch to a block, whose operators may not be seen."""

    @functools.wraps(give)
    def marks(self: Any, *args: Any, **said: Any) -> Any:
        made = give(self, *args, **said)
        if here.hand is not None:
            if _seen.made and here.in_block:
                then = min((oldest(since_of(each)) for each in arrays(made)), default=NEVER)
                if then < 0:
                    refuse(then)
        elif _place() == BETWEEN_LOOPS and id(self) in here.loop.outside.trained:
            _mark(made, BETWEEN_LOOPS)
        return made

    return marks


def _reads(read: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(read)
    def notes(self: Any) -> Any:
        if _seen.made and (place := _place()) is not None and self.size > 1:
            _note(self, place)
        return read(self)

    return notes


def _fills(fill: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fill)
    def notes(self: Any, *args: Any) -> None:
        for each in arrays(list(args)) if _seen.made and _place() == BETWEEN_LOOPS else ():
            _note(each, BETWEEN_LOOPS)
        fill(self, *args)

    return notes


def _note(array: Any, place: int) -> None:
    """Where the script reads it, if it is not for a metric or to be printed."""
    if oldest(since_of(array)) != place:
        return
    frame = sys._getframe(2)
    shown = str(frame.f_globals.get("__name__")).startswith(("mxnet.ndarray", "mxnet.numpy"))
    if shown or isinstance(frame.f_locals.get("self"), mx.metric.EvalMetric):
        return
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(LIBRARIES):
        frame = frame.f_back
    at = frame.f_code.co_filename, frame.f_lineno
    if place == BETWEEN_LOOPS:
        _seen.read = _seen.read or at
    elif here.loop.outside.at == "begins" and not _seen.told:
        _seen.told = True
        log.warning(READ[place], *at)


gluon.Block.__call__ = _calls(gluon.Block.__call__)
for _name in ("data", "list_data", "grad", "list_grad"):
    setattr(gluon.Parameter, _name, _gives(getattr(gluon.Parameter, _name)))
mx.nd.NDArray.asnumpy = _reads(mx.nd.NDArray.asnumpy)
gluon.data.ArrayDataset.__init__ = _fills(gluon.data.ArrayDataset.__init__)
