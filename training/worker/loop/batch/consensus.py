"""What goes beside a sum of gradients: numbers of each worker whose sums show whether all of them mean the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from dyntrain.controller.contract.messages import MOST_WORKERS
from dyntrain.training.worker.arrays import doubles, numbers_of
from dyntrain.training.worker.loop.record.fingerprints import FINGERPRINT

# MXNet's servers may add up doubles as floats, whose whole numbers are exact up to 2**24: of as many workers as may
# be, the squares of numbers up to this one are summed without an error
ROUND = math.isqrt(2**24 // MOST_WORKERS) - 1
TAGGED = 7  # its numbers: workers, the step's mark, the tags
SUMMED = TAGGED + 4  # and those of what is summed
DOUBTS = SUMMED + 2  # whether its divisor is unsure, and whether it refuses the script
HEAD = DOUBTS + FINGERPRINT  # and a fingerprint; those of the parameters follow
OTHER_STEPS = (
    "the workers' scripts called trainer.step() at different batches: number them with epoch.enumerate(...), not with "
    "a counter of the script's own, which begins anew on a worker that joins"
)


def mark(number: int) -> list[float]:
    """What workers add to a sum to show that all of them mean `number`: it comes to as many times this one's mark when
    they do, and to something else when any of them is a few off.
    """
    small = float(number % ROUND + 1)
    return [small, small**2]


def consensus_key(trainer: int) -> str:
    return f"tally{trainer}"


def consensus_keys(trainers: Sequence[Any], flags: int) -> list[tuple[str, tuple[int, ...], str]]:
    """(key, shape, dtype) of each trainer's."""
    return [(consensus_key(t), (HEAD + len(each._params) + flags,), "float64") for t, each in enumerate(trainers)]


class StepConsensus:
    """Of one worker and one sum: that it is at this `step`, what its update will go by (`tags`, `fingerprint`, and
    whether it is `unsure` of its divisor), which gradients it `sums` (tags, too), whether it `refuses` the script, of
    which parameters its samples `had_part`, and `flags` of those that must be equal on all workers.
    """

    def __init__(
        self,
        step: int,
        tags: list[float],
        sums: list[float],
        fingerprint: Sequence[float],
        *,
        unsure: bool = False,
        refuses: bool = False,
        had_part: Sequence[float] = (),
        flags: Sequence[float] = (),
    ) -> None:
        self._mark, self._tags, self._sums, self._parameters = mark(step), tags, sums, len(had_part)
        # of NumPy's where nobody is there to sum it with
        self.vote: Any = np.array([1.0, *self._mark, *tags, *sums, unsure, refuses, *fingerprint, *had_part, *flags])
        self.unsure_workers = 0
        self.refused = False  # by any worker
        self.tagged: list[float] = []  # the tags of all workers, summed
        self.fingerprints: list[float] = []  # on the numbers in the loss: likewise
        self.had_part: list[bool] = []  # of any worker's samples
        self.flagged: list[int] = []  # by any worker

    def to_be_summed(self) -> None:
        """Waits for all that is computed."""
        self.vote = doubles(self.vote)

    def sums_alike(self, workers: int) -> bool:
        """It is summed: whether all workers sum the gradients of the same parameters."""
        return bool(numbers_of(self.vote)[TAGGED:SUMMED].tolist() == [workers * tag for tag in self._sums])

    def count(self, workers: int) -> bool:
        """It is summed: whether all workers' updates will go by the same. Raises RuntimeError when they are of
        different steps.
        """
        total = numbers_of(self.vote)
        if total[:3].tolist() != [workers * part for part in (1.0, *self._mark)]:
            raise RuntimeError(OTHER_STEPS)
        self.tagged, self.unsure_workers = total[3:TAGGED].tolist(), int(total[SUMMED])
        self.refused = bool(total[SUMMED + 1])
        self.fingerprints = total[DOUBTS:HEAD].tolist()
        self.had_part = [bool(each) for each in total[HEAD : HEAD + self._parameters]]
        self.flagged = np.flatnonzero(total[HEAD + self._parameters :]).tolist()
        return self.tagged == [workers * tag for tag in self._tags]
