"""Gradients that add up over the batches of one update, and that the script is to set to zero after it.

The job does so after each update, for those that a worker's next batch would add to must be the same on all workers. In
one process nobody would: a script that forgets it trains otherwise here, so it is told.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet import gluon  # isort: skip

from dyntrain.training.worker.loop.batch.here import here


class AddingUp:
    """Of one loop: it is told once."""

    def __init__(self) -> None:
        self._updated, self._zeroed = set[Any](), set[Any]()  # parameters, the second since their last update
        self._told = False

    def zeroed(self, params: Iterable[Any]) -> None:
        """By the script."""
        self._zeroed.update(params)

    def updated(self, trainers: Iterable[Any]) -> None:
        """The batch is put down, so the script has had its chance to set them to zero after its step. One that does it
        before its backward() has done so since the update before.
        """
        now = {param for trainer in trainers for param in trainer._params if param.grad_req == "add"}
        if not self._told and (now & self._updated) - self._zeroed:
            self._told = True
            here.loop.findings.find("DT306")
        self._updated |= now
        self._zeroed -= now


def _zeroes(zero_grad: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(zero_grad)
    def looks(self: Any) -> Any:
        if hasattr(here, "loop"):
            here.loop.adding_up.zeroed([self] if isinstance(self, gluon.Parameter) else self.values())
        return zero_grad(self)

    return looks


gluon.Parameter.zero_grad = _zeroes(gluon.Parameter.zero_grad)
gluon.ParameterDict.zero_grad = _zeroes(gluon.ParameterDict.zero_grad)
