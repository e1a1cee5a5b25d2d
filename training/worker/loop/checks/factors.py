"""Collect the numbers by which each trainer's losses are multiplied, to compare these numbers on all workers.

MXNet's record of a computation contains the values of Python numbers, but only the names of arrays of one number. So
the values of arrays of one number are read while the arrays exist. The module `fingerprints` compares the multipliers
of losses between the workers.
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


class LossFactors:
    """Numbers by which each trainer's losses were multiplied since its last sum of gradients.

    `constants`: values of the arrays of one number in the record of the current batch, by name. If the share has one
    sample, the values are NaN, because in a share of one sample a sample weight is also an array of one number.
    """

    def __init__(self) -> None:
        self.constants: dict[str, float] = {}
        self._of: dict[Any, Terms] = {}

    def store_constants(self, operands: Sequence[Any], output: Any, samples: int) -> None:
        """Store the values of those operands that have one number and are constants in MXNet's record.

        `samples`: number of samples on the device that has the fewest samples.
        """
        if name_of(output) is None:
            return
        for operand in operands:
            if (operand_name := name_of(operand) or "").startswith("null") and operand.size == 1:
                self.constants[operand_name] = math.nan if samples < 2 else float(operand.asnumpy().item())

    @contextmanager
    def assign_terms(self, terms: Terms, trainers: Collection[Any], batch: int) -> Iterator[None]:
        """Assign a loss's terms to the trainers whose weights the loss reaches, when the loss is differentiated in the
        `with` block.

        Several losses may be differentiated before a trainer steps, so a trainer's terms are collected until its next
        sum. `batch`: the batch's number in its update, from 1. The workers' shares differ in size only in an update's
        first batch, so that batch's terms are stored separately.
        """
        trainer_weights = [
            (trainer, weight)
            for trainer in trainers
            for param in trainer._params
            if has_gradient(param)
            for weight in param._data or ()
        ]
        freshness = [(weight, weight._fresh_grad) for _, weight in trainer_weights]
        for _, weight in trainer_weights:
            weight._fresh_grad = False
        try:
            yield
            for trainer in {id(trainer): trainer for trainer, weight in trainer_weights if weight._fresh_grad}.values():
                numbered_terms = {(f"{operator} {min(batch, 2)}", number) for operator, number in terms}
                self._of[trainer] = self._of.get(trainer, set()) | numbered_terms
        finally:
            for weight, was_fresh in freshness:
                weight._fresh_grad |= was_fresh

    def take_terms(self, trainer: Any) -> Terms:
        """Return the loss terms collected since the trainer's last sum of gradients, and forget those terms."""
        return self._of.pop(trainer, set())

    def end_batch(self, forgets: bool) -> None:
        """Forget the batch's constants. `forgets`: whether to forget the batch's terms too, because no later update
        includes the batch's gradients.
        """
        self.constants.clear()
        if forgets:
            self._of.clear()


def name_of(array: Any) -> str | None:
    """Return an array's name in MXNet's record, which is the name of the operator or block that made the array.

    Returns None if the array is not part of a record.
    """
    try:
        return str(autograd.get_symbol(array).name)
    except mx.MXNetError:
        return None
