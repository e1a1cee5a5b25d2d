"""By which numbers the losses of each trainer are multiplied, gathered while a step is on trial: see `opinions`.

A number of Python's is in MXNet's record; an array of one number is there by its name alone. So the operators by which
a script multiplies and divides look at such arrays while they are at hand; and at weights of samples that add up to 1,
which they do in each worker's share where a script divided them by their sum.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
import numpy as np
from dyntrain.training.worker.loop.batch.hand import Hand, summed
from dyntrain.training.worker.loop.batch.here import here
from mxnet import autograd

OPERATORS = ("broadcast_mul", "broadcast_div", "elemwise_mul", "elemwise_div")
NUMPYS = ("multiply", "true_divide")
NEAR = 1e-4
Terms = set[tuple[str, str]]  # (operator, number): see `multiples`


class Factors:
    """`constants`: of arrays of one number that took part in what is recorded in the batch at hand, by the names that
    they have in the record. NaN in a share of one sample, of which the weights of the samples are one number, too: it
    says nothing. `weights`: of those that add up to 1, a number that only equal ones have. `hybrids`: symbols of the
    hybridized blocks that were called, likewise.
    """

    def __init__(self) -> None:
        self.constants: dict[str, float] = {}
        self.weights: dict[str, float] = {}
        self.hybrids: dict[str, Any] = {}
        self._of: dict[Any, tuple[Terms, Terms]] = {}

    @contextmanager
    def learn(self, found: Terms, weighed: Terms, trainers: Collection[Any], batch: int) -> Iterator[None]:
        """What has these factors is differentiated within; `weighed`: with its `weights`. They are those of the
        trainers whose weights it reaches: several losses may be differentiated before any trainer steps. `batch`: of
        those that an update is of, from 1; in the first the shares differ in size, so its numbers are told from the
        others'.
        """
        weights = [(t, d) for t in trainers for p in t._params if summed(p) for d in p._data or ()]
        before = [(weight, weight._fresh_grad) for _, weight in weights]
        for _, weight in weights:
            weight._fresh_grad = False
        try:
            yield
            for trainer in {id(t): t for t, weight in weights if weight._fresh_grad}.values():
                before_it = self._of.get(trainer, (set(), set()))
                said = {(f"{kind} {min(batch, 2)}", number) for kind, number in found}
                self._of[trainer] = before_it[0] | said, before_it[1] | weighed
        finally:
            for weight, fresh in before:
                weight._fresh_grad |= fresh

    def take(self, trainer: Any) -> tuple[Terms, Terms]:
        """Since its last sum, and with weights that add up to 1."""
        return self._of.pop(trainer, (set(), set()))

    def put_down(self, forgets: bool) -> None:
        """The batch; `forgets`: no update to come is of it."""
        self.constants.clear()
        self.weights.clear()
        self.hybrids.clear()
        if forgets:
            self._of.clear()


def _watched(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def looks(*args: Any, **said: Any) -> Any:
        made = operator(*args, **said)
        if here.hand is not None and here.loop.on_trial and autograd.is_recording():
            remember(here.hand, [each for each in (*args, *said.values()) if isinstance(each, mx.nd.NDArray)], made)
        return made

    return looks


def remember(hand: Hand, operands: list[Any], made: Any) -> None:
    """Of those that are neither differentiated nor made of what is, arrays of one number, and such weights."""
    if name_of(made) is None:
        return
    alone = hand.fewest(len(here.loop.trainers[0]._contexts)) < 2
    for each in operands:
        if not (name := name_of(each) or "").startswith("null"):
            continue
        numbers = each.asnumpy()
        if numbers.size == 1 or (alone and _add_up(numbers)):
            here.loop.factors.constants[name] = math.nan if alone else float(numbers.item())
        elif _add_up(numbers):
            digest = hashlib.blake2b(numbers.tobytes(), digest_size=4).digest()
            here.loop.factors.weights[name] = 1 + int.from_bytes(digest, "big") / 2**32


def _add_up(numbers: Any) -> bool:
    """To 1. Those of classes are the same on every worker. A mask of a single place adds up to 1 by chance."""
    if not numbers.size or numbers.dtype.kind != "f":
        return False
    return bool(abs(numbers.sum(dtype=np.float64) - 1) <= NEAR and numbers.max() <= 1 - NEAR)


def name_of(array: Any) -> str | None:
    """In the record, which for what comes of an operator or a block is the name of that. None: nothing that it is
    made of, or took part in, is differentiated.
    """
    try:
        return str(autograd.get_symbol(array).name)
    except mx.MXNetError:
        return None


for _module in (mx.nd, mx.nd.op):
    for _name in OPERATORS:
        setattr(_module, _name, _watched(getattr(_module, _name)))
for _name in NUMPYS:
    setattr(mx.nd.numpy._op._npi, _name, _watched(getattr(mx.nd.numpy._op._npi, _name)))
