"""By which numbers the losses of each trainer are multiplied, gathered while a step is on trial: see `opinions`.

A number of Python's is in MXNet's record; an array of one number is there by its name alone. So the operators by which
a script multiplies and divides look at such arrays while they are at hand.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.loop.hand import Hand, summed
from dyntrain.training.worker.loop.here import here
from mxnet import autograd

OPERATORS = ("broadcast_mul", "broadcast_div", "elemwise_mul", "elemwise_div")
NUMPYS = ("multiply", "true_divide")


class Factors:
    """`constants`: of arrays of one number that took part in what is recorded in the batch at hand, by the names that
    they have in the record. NaN in a share of one sample, of which the weights of the samples are one number, too: it
    says nothing.
    """

    def __init__(self) -> None:
        self.constants: dict[str, float] = {}
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
        if forgets:
            self._of.clear()


def _watched(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def looks(*args: Any, **said: Any) -> Any:
        made = operator(*args, **said)
        if here.hand is not None and here.loop.on_trial and autograd.is_recording():
            _remember(here.hand, [each for each in (*args, *said.values()) if isinstance(each, mx.nd.NDArray)], made)
        return made

    return looks


def _remember(hand: Hand, operands: list[Any], made: Any) -> None:
    """Those that are arrays of one number, and neither differentiated nor made of what is."""
    if all(each.size > 1 for each in operands):
        return
    try:
        autograd.get_symbol(made)
    except mx.MXNetError:
        return  # it is not recorded
    alone = hand.fewest(len(here.loop.trainers[0]._contexts)) < 2
    for each in operands:
        if each.size == 1 and (name := autograd.get_symbol(each).name).startswith("null"):
            here.loop.factors.constants[name] = math.nan if alone else float(each.asnumpy().item())


for _module in (mx.nd, mx.nd.op):
    for _name in OPERATORS:
        setattr(_module, _name, _watched(getattr(_module, _name)))
for _name in NUMPYS:
    setattr(mx.nd.numpy._op._npi, _name, _watched(getattr(mx.nd.numpy._op._npi, _name)))
