"""Numbers by which each trainer's losses are multiplied, collected while a step is on trial: see `fingerprints`.

MXNet's record has a Python number's value, but only the name of an array of one number. So the values of such arrays
are read while they exist.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.loop.batch.current_batch import summed
from dyntrain.training.worker.loop.record.operators import PRODUCTS, RATIOS, handle_of
from mxnet import autograd

Terms = set[tuple[str, str]]  # (operator, number): see `multiples`


PRODUCTS_AND_RATIOS = {handle_of(name) for name in PRODUCTS | RATIOS}


class Factors:
    """Factors of the losses since each trainer's last sum.

    `constants`: arrays of one number that took part in the record of the current batch, by their names there. A value
    is NaN if the share has one sample, because sample weights are one number then, too.
    """

    def __init__(self) -> None:
        self.constants: dict[str, float] = {}
        self._of: dict[Any, Terms] = {}

    def remember(self, operands: Sequence[Any], output: Any, samples: int) -> None:
        """Record the operands of one number that are neither differentiated nor computed from what is.

        `samples`: of the device that has the fewest.
        """
        if name_of(output) is None:
            return
        for each in operands:
            if (name := name_of(each) or "").startswith("null") and each.size == 1:
                self.constants[name] = math.nan if samples < 2 else float(each.asnumpy().item())

    @contextmanager
    def learn(self, terms: Terms, trainers: Collection[Any], batch: int) -> Iterator[None]:
        """Assign the terms of a loss that is differentiated within to the trainers whose weights it reaches.

        Several losses may be differentiated before any trainer steps. `batch`: the batch's number in its update, from
        1. The shares differ in size in the first one, so its numbers are kept apart from those of the others.
        """
        weights = [(t, d) for t in trainers for p in t._params if summed(p) for d in p._data or ()]
        before = [(weight, weight._fresh_grad) for _, weight in weights]
        for _, weight in weights:
            weight._fresh_grad = False
        try:
            yield
            for trainer in {id(t): t for t, weight in weights if weight._fresh_grad}.values():
                counted = {(f"{kind} {min(batch, 2)}", number) for kind, number in terms}
                self._of[trainer] = self._of.get(trainer, set()) | counted
        finally:
            for weight, fresh in before:
                weight._fresh_grad |= fresh

    def take(self, trainer: Any) -> Terms:
        """Terms since the trainer's last sum."""
        return self._of.pop(trainer, set())

    def put_down(self, forgets: bool) -> None:
        """End the batch; `forgets`: no later update has part in it."""
        self.constants.clear()
        if forgets:
            self._of.clear()


def name_of(array: Any) -> str | None:
    """Name in MXNet's record: of the operator or block that made the array.

    None if nothing that it is made of, or takes part in, is differentiated.
    """
    try:
        return str(autograd.get_symbol(array).name)
    except mx.MXNetError:
        return None
