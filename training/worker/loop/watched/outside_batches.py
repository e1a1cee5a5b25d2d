"""What a script makes of trained weights outside of its batches: pseudo-labels, features, a copy of the net as a
teacher, how much each weight counts (EWC).

Who begins in the second of two loops runs the lines between them with the weights that it began with, and who joins
within an epoch those where the epoch begins with later ones. So what is made there of what a net gives, of a deep copy
of it, and between loops of weights and their gradients, too, is followed as a batch's numbers are (`origins`), as older
than every step. Where it has a part in a loss, and the job does not keep it, the script is refused. What goes on as
NumPy's numbers is in `read_outside`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Literal
from weakref import WeakKeyDictionary

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.loop.watched.origins import arrays, follow, follows, put, since_of
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
    "where the epoch begins: if not epoch.resumed: kept['y'][:] = ...; and in the batches kept['y'] as it is there. Of "
    "a copy of the net job.keep(copy), whose weights are set there. Or job.epochs(..., changes='epoch')",
}


class _Seen(threading.local):
    made = False  # anything, by this job


_seen = _Seen()


def forget_outside() -> None:
    """Another job begins."""
    _seen.made = False


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
        for param in self.trained.values():
            _mark([*(param._data or ()), *(param._grad or ())], BETWEEN_LOOPS)
        _mark([found.copies for found in state.kept.arrays()], BETWEEN_LOOPS)

    def _learn(self, state: TrainingState) -> None:
        """What is frozen now may have trained before."""
        trains = (param for param in state.parameters if param.grad_req != "null")
        self.trained.update((id(param), param) for param in (*trains, *state.kept.parameters))
        self._trains.clear()

    def trains(self, array: Any) -> bool:
        """Whether it is a weight that does."""
        return any(array is each for param in self.trained.values() for each in param._data or ())

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


def anything() -> bool:
    return _seen.made


def refuse(made: int) -> None:
    """At the next sum, together with all workers."""
    here.loop.refusal = here.loop.refusal or MADE[made] % here.loop.position.step


def place() -> int | None:
    """Of a line of the script's outside of its batches and nets."""
    loop = getattr(here, "loop", None)
    if loop is None or here.hand is not None or here.in_block or here.in_job:
        return None
    if loop.outside.at == "over":
        return BETWEEN_LOOPS
    return BESIDE_AN_EPOCH if loop.outside.at and loop.follows else None


def _mark(made: Any, where: int) -> None:
    _seen.made = True
    for each in arrays(made):
        put(each, where, into=False)


def _calls(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def marks(self: Any, *args: Any, **said: Any) -> Any:
        made = call(self, *args, **said)
        if (where := place()) is not None and here.loop.outside.trains_any_of(self):
            _mark(made, where)
        return made

    return marks


def _gives(give: Callable[..., Any]) -> Callable[..., Any]:
    """Weights to a block in a batch, whose operators may not be seen."""

    @functools.wraps(give)
    def looks(self: Any, *args: Any, **said: Any) -> Any:
        made = give(self, *args, **said)
        if _seen.made and here.in_block and here.hand is not None:
            then = min((oldest(since_of(each)) for each in arrays(made)), default=NEVER)
            if then < 0:
                refuse(then)
        return made

    return looks


def _copied(self: Any, memo: dict[int, Any]) -> Any:
    """`copy.deepcopy`, which goes by way of bytes."""
    kind, how, numbers = self.__reduce__()
    memo[id(self)] = made = kind(*how)
    made.__setstate__(numbers)
    if (where := place()) is not None and here.loop.outside.trains(self):
        _mark(made, where)
    elif follows():
        follow(None, [self], made, into=False)
    return made


gluon.Block.__call__ = _calls(gluon.Block.__call__)
gluon.Parameter.data, gluon.Parameter.list_data = _gives(gluon.Parameter.data), _gives(gluon.Parameter.list_data)
mx.nd.NDArray.__deepcopy__ = _copied
