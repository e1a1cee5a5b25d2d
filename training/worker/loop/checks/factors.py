"""Collect the numbers by which each trainer's losses are multiplied, to compare these numbers on all workers.

MXNet's record has the value of a Python number, but only the name of an array of one number. So the values of such
arrays are read while the arrays exist. `fingerprints` has the comparison and its steps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.loop.batch.current_batch import has_gradient
from dyntrain.training.worker.loop.record.operators import PRODUCTS, RATIOS, handle_of
from mxnet import autograd

Terms = set[tuple[str, str]]  # (operator, number): see `multiples`


PRODUCTS_AND_RATIOS = {handle_of(name) for name in PRODUCTS | RATIOS}


class Factors:
    """Factors of the losses since each trainer's last sum.

    `constants`: values of the arrays of one number in the record of the current batch, by name. A value is NaN if the
    share has one sample, because then sample weights are one number, too.
    """

    def __init__(self) -> None:
        self.constants: dict[str, float] = {}
        self._of: dict[Any, Terms] = {}

    def remember(self, operands: Sequence[Any], output: Any, samples: int) -> None:
        """Store the values of operands that have one number and are constants in the record.

        `samples`: number of samples on the device with the fewest.
        """
        if name_of(output) is None:
            return
        for each in operands:
            if (name := name_of(each) or "").startswith("null") and each.size == 1:
                self.constants[name] = math.nan if samples < 2 else float(each.asnumpy().item())

    @contextmanager
    def learn(self, terms: Terms, trainers: Collection[Any], batch: int) -> Iterator[None]:
        """Assign the terms of a loss that is differentiated in this context to the trainers whose weights it reaches.

        Several losses may be differentiated before any trainer steps. `batch`: the batch's number in its update, from
        1. Only in the first batch do shares differ in size, so its numbers are stored separately.
        """
        weights = [(t, d) for t in trainers for p in t._params if has_gradient(p) for d in p._data or ()]
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
        """Return and remove the terms since the trainer's last sum."""
        return self._of.pop(trainer, set())

    def end_batch(self, forgets: bool) -> None:
        """End the batch. `forgets`: no later update includes its gradients."""
        self.constants.clear()
        if forgets:
            self._of.clear()


def name_of(array: Any) -> str | None:
    """Return an array's name in MXNet's record: the name of the operator or block that made it.

    Returns None if the array is not part of a record.
    """
    try:
        return str(autograd.get_symbol(array).name)
    except mx.MXNetError:
        return None
