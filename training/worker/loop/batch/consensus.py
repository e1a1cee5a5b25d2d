"""Numbers that each worker adds to a sum of gradients, to show whether all workers agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from dyntrain.controller.contract.messages import MOST_WORKERS
from dyntrain.training.worker.arrays import float64_array, numbers_of
from dyntrain.training.worker.loop.record.fingerprints import FINGERPRINT_SIZE

# MXNet's servers may sum doubles as floats, which are exact for whole numbers up to 2**24. So the squares of numbers
# up to LARGEST_MARK are summed exactly, even over the largest number of workers.
LARGEST_MARK = math.isqrt(2**24 // MOST_WORKERS) - 1
SUMS_START = 7  # offset after the number of workers, the step's mark and the tags
FLAGS_START = SUMS_START + 4  # offset after the tags of the summed parameters
FINGERPRINT_START = FLAGS_START + 2  # offset after two flags: unsure of the divisor, refuses the script
PARAMETERS_START = FINGERPRINT_START + FINGERPRINT_SIZE  # offset at which the numbers of each parameter begin
OTHER_STEPS_ERROR = (
    "the workers' scripts called trainer.step() at different batches: number them with epoch.enumerate(...), not with "
    "a counter of the script's own, which begins at 0 on a worker that joins"
)


def marks_of(number: int) -> list[float]:
    """Return numbers whose sums over the workers show whether all workers have the same `number`.

    If all workers have the same `number`, each sum is the number of workers times this worker's returned number.
    """
    remainder = float(number % LARGEST_MARK + 1)
    return [remainder, remainder**2]


def consensus_key(trainer: int) -> str:
    return f"tally{trainer}"


def consensus_keys(trainers: Sequence[Any], flags: int) -> list[tuple[str, tuple[int, ...], str]]:
    """Return the kvstore key, the shape and the dtype of each trainer's consensus numbers."""
    return [
        (consensus_key(number), (PARAMETERS_START + len(trainer._params) + flags,), "float64")
        for number, trainer in enumerate(trainers)
    ]


class StepConsensus:
    """Numbers that one worker adds to one sum of gradients, and what their sums over the workers show.

    `step`: the number of the worker's step. `tags`, `fingerprint`: numbers computed from the values that the worker's
    update depends on. `sums`: tags of the set of parameters whose gradients the worker sums. `unsure`: whether the
    worker's divisor is uncertain. `refuses`: whether the worker refuses the script. `has_samples`: 1 for each parameter
    whose gradient comes from the worker's own samples. `flags`: for each parameter that must be equal on all workers, 1
    if a forward pass of this worker has changed it.
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
        has_samples: Sequence[float] = (),
        flags: Sequence[float] = (),
    ) -> None:
        self._mark, self._tags, self._sums, self._parameters = marks_of(step), tags, sums, len(has_samples)
        # stays a NumPy array if this is the only worker
        self.vote: Any = np.array([1.0, *self._mark, *tags, *sums, unsure, refuses, *fingerprint, *has_samples, *flags])
        self.unsure_workers = 0
        self.refused = False  # whether any worker refuses the script
        self.tagged: list[float] = []  # the tags of all workers, summed
        self.fingerprints: list[float] = []  # the fingerprints of all workers, summed
        self.has_samples: list[bool] = []  # by parameter: whether its gradient comes from any worker's samples
        self.flagged: list[int] = []  # indices of the flags that any worker has set

    def convert_to_mxnet(self) -> None:
        """Convert the worker's numbers to an MXNet array; the conversion waits for all pending computation."""
        self.vote = float64_array(self.vote)

    def sums_same_parameters(self, workers: int) -> bool:
        """Return whether the sums over the workers show that all workers sum the gradients of the same parameters."""
        return bool(numbers_of(self.vote)[SUMS_START:FLAGS_START].tolist() == [workers * tag for tag in self._sums])

    def read_sums(self, workers: int) -> bool:
        """Read the sums over all workers; returns whether all workers' updates depend on equal values.

        Raises RuntimeError if the workers have summed in different steps.
        """
        sums = numbers_of(self.vote)
        if sums[:3].tolist() != [workers * own_number for own_number in (1.0, *self._mark)]:
            raise RuntimeError(OTHER_STEPS_ERROR)
        self.tagged, self.unsure_workers = sums[3:SUMS_START].tolist(), int(sums[FLAGS_START])
        self.refused = bool(sums[FLAGS_START + 1])
        self.fingerprints = sums[FINGERPRINT_START:PARAMETERS_START].tolist()
        self.has_samples = [bool(flag_sum) for flag_sum in sums[PARAMETERS_START : PARAMETERS_START + self._parameters]]
        self.flagged = np.flatnonzero(sums[PARAMETERS_START + self._parameters :]).tolist()
        return self.tagged == [workers * tag for tag in self._tags]
