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


class Factors:
    """`constants`: of arrays of one number that took part in what is recorded in the batch at hand, by the names that
    they have in the record. NaN in a share of one sample, of which the weights of the samples are one number, too: it
    says nothing. Of weights that add up to 1, a number that only equal ones have. `hybrids`: symbols of the hybridized
    blocks that were called, likewise.
    """

    def __init__(self) -> None:
        self.constants: dict[str, float] = {}
        self.hybrids: dict[str, Any] = {}
        self._of: dict[Any, set[tuple[str, str]]] = {}

    @contextmanager
    def learn(self, found: Collection[tuple[str, str]], trainers: Collection[Any], batch: int) -> Iterator[None]:
        """What has these factors is differentiated within. They are those of the trainers whose weights it reaches:
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
                self._of[trainer] = self._of.get(trainer, set()) | {
                    (f"{kind} {min(batch, 2)}", number) for kind, number in found
                }
        finally:
            for weight, fresh in before:
                weight._fresh_grad |= fresh

    def take(self, trainer: Any) -> set[tuple[str, str]]:
        """Since its last sum."""
        return self._of.pop(trainer, set())

    def put_down(self, forgets: bool) -> None:
        """The batch; `forgets`: no update to come is of it."""
        self.constants.clear()
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
        constant = (name := name_of(each) or "").startswith("null")
        if constant and (number := _tells(each)) is not None:
            here.loop.factors.constants[name] = math.nan if alone else number


def _tells(array: Any) -> float | None:
    """The number of an array that has one. Of weights that add up to 1, one that equal weights have alone: those of
    classes are the same on every worker. A mask of a single place adds up to 1 by chance.
    """
    numbers = array.asnumpy()
    if numbers.size == 1:
        return float(numbers.item())
    if not numbers.size or numbers.dtype.kind != "f":
        return None
    if abs(numbers.sum(dtype=np.float64) - 1) > NEAR or numbers.max() > 1 - NEAR:
        return None
    return 1 + int.from_bytes(hashlib.blake2b(numbers.tobytes(), digest_size=4).digest(), "big") / 2**32


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
