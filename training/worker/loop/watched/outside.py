"""Where a script is outside of its batches, and what was made there of trained weights: it is marked as older than all
steps, and followed as a batch's numbers are (`origins`).
"""

from __future__ import annotations

from typing import Any, Literal
from weakref import WeakKeyDictionary, WeakSet

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.loop.watched.made_of_weights import was_made
from dyntrain.training.worker.loop.watched.origins import arrays, put, since_of
from dyntrain.training.worker.loop.watched.row_steps import NEVER, oldest
from dyntrain.training.worker.state.training_state import TrainingState

BETWEEN_LOOPS, BESIDE_AN_EPOCH = -2, -1  # before every step
MADE = {BETWEEN_LOOPS: "DT504", BESIDE_AN_EPOCH: "DT505"}


class Known:
    """By one job, in all of its loops."""

    def __init__(self) -> None:
        self.made = False  # anything
        self.differentiated = False  # what was made
        self.files: dict[str, int] = {}  # by paths: what each worker has written of it, and where


class Outside:
    """Of one loop: where the script is outside of its batches, and which weights have trained by then."""

    def __init__(self, before: Outside | None) -> None:
        self.at: Literal["begins", "ends", "over"] | None = None  # its epoch, or the loop
        self.known: Known = before.known if before else Known()
        self.trained: dict[int, Any] = dict(before.trained) if before else {}  # parameters by ids, of all loops so far
        self.written = WeakSet[Any]()  # parameters that the script has set in this loop, outside of its nets
        self._params: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()  # by blocks

    def begins(self, state: TrainingState) -> None:
        """An epoch."""
        self.at, self.known.differentiated = "begins", False
        self._learn(state)

    def ends(self) -> None:
        self.at = "ends"

    def inside(self) -> None:
        self.at = None

    def over(self, state: TrainingState) -> None:
        """The loop; also where this worker came too late for it, and went past."""
        self.at = "over"
        self._learn(state)
        for param in {**self.trained, **{id(param): param for param in self.written}}.values():
            mark([*(param._data or ()), *(param._grad or ())], BETWEEN_LOOPS)
        mark([found.copies for found in state.kept.arrays()], BETWEEN_LOOPS)

    def _learn(self, state: TrainingState) -> None:
        """What is frozen now may have trained before."""
        trains = (param for param in state.parameters if param.grad_req != "null")
        self.trained.update((id(param), param) for param in (*trains, *state.kept.parameters))
        self._params.clear()

    def wrote(self, param: Any) -> None:
        """Between loops every worker does, so there it counts what the numbers are made of."""
        if self.at != "over":
            self.written.add(param)

    def trains(self, array: Any) -> bool:
        """Whether it is a weight that does."""
        return any(array is each for param in self.trained.values() for each in param._data or ())

    def is_of_trained(self, block: Any) -> bool:
        """Whether any of its weights trains, or was set to what others do not have or to what was made of those."""
        if block not in self._params:
            self._params[block] = list(block.collect_params().values())
        return any(
            id(param) in self.trained
            or (param in self.written and self.at != "over")
            or any(oldest(since_of(each)) < 0 or was_made(each) for each in param._data or ())
            for param in self._params[block]
        )


def is_of_trained_weights(array: Any) -> bool:
    return oldest(since_of(array)) < 0 or was_made(array) or here.loop.outside.trains(array)


def place() -> int | None:
    """Of a line of the script's outside of its batches and nets."""
    loop = getattr(here, "loop", None)
    if loop is None or here.hand is not None or here.in_block or here.in_job:
        return None
    if loop.outside.at == "over":
        return BETWEEN_LOOPS
    return BESIDE_AN_EPOCH if loop.outside.at and loop.follows else None


def mark(made: Any, where: int) -> None:
    here.loop.outside.known.made = True
    for each in arrays(made):
        put(each, where, into=False)


def mark_gradients(gradients: Any) -> None:
    """That are read: of what was made here."""
    if (where := place()) is not None and here.loop.outside.known.differentiated:
        mark(gradients, where)


def made_at(nested: Any) -> int | None:
    """None: it was not made of trained weights outside of batches."""
    then = min((oldest(since_of(each)) for each in arrays(nested)), default=NEVER)
    return then if then < 0 else None


def tell(made: int) -> None:
    here.loop.findings.find(MADE[made], now=here.loop.position.step)


def settle(state: TrainingState) -> None:
    """A loop or an epoch begins: its trainers' weights and what the job keeps are the same on all workers, whatever
    they were made of.
    """
    if not here.loop.outside.known.made:
        return
    for param in [*state.parameters, *state.kept.parameters]:
        for each in (*(param._data or ()), *(param._grad or ())):
            put(each, NEVER, into=True)
    for found in state.kept.arrays():
        for each in found.copies:
            put(each, NEVER, into=True)
