"""By which numbers the losses of each trainer are multiplied, gathered while a step is on trial: see `fingerprints`.

A number of Python's is in MXNet's record; an array of one number is there by its name alone. So such arrays are looked
at while they are at hand.
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
    """`constants`: of arrays of one number that took part in what is recorded in the batch at hand, by the names that
    they have in the record. NaN in a share of one sample, of which the weights of the samples are one number, too: it
    says nothing.
    """

    def __init__(self) -> None:
        self.constants: dict[str, float] = {}
        self._of: dict[Any, Terms] = {}

    def remember(self, operands: Sequence[Any], output: Any, samples: int) -> None:
        """Those that are neither differentiated nor made of what is. `samples`: of the device that has the fewest."""
        if name_of(output) is None:
            return
        for each in operands:
            if (name := name_of(each) or "").startswith("null") and each.size == 1:
                self.constants[name] = math.nan if samples < 2 else float(each.asnumpy().item())

    @contextmanager
    def learn(self, terms: Terms, trainers: Collection[Any], batch: int) -> Iterator[None]:
        """What has these terms is differentiated within. They are those of the trainers whose weights it reaches:
        several losses may be differentiated before any trainer steps. `batch`: of those that an update is of, from 1;
        in the first the shares differ in size, so its numbers are told from the others'.
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
        """Since its last sum."""
        return self._of.pop(trainer, set())

    def put_down(self, forgets: bool) -> None:
        """The batch; `forgets`: no update to come is of it."""
        self.constants.clear()
        if forgets:
            self._of.clear()


def name_of(array: Any) -> str | None:
    """In the record, which for what comes of an operator or a block is the name of that. None: nothing that it is
    made of, or took part in, is differentiated.
    """
    try:
        return str(autograd.get_symbol(array).name)
    except mx.MXNetError:
        return None
