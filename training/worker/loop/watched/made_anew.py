"""Weights that are made within a loop, as those of a net that each epoch has anew: each worker draws others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet import gluon  # isort: skip

from dyntrain.training.worker.loop.batch.here import here


class MadeAnew:
    """Of one loop: it is told once."""

    def __init__(self) -> None:
        self._drawn = WeakSet[Any]()  # and not set to anything since
        self._told = False

    def drawn(self, param: Any) -> None:
        self._drawn.add(param)

    def is_set(self, param: Any) -> None:
        self._drawn.discard(param)

    def called(self, block: Any) -> None:
        """In a batch, where it is recorded."""
        for param in block.collect_params().values() if self._drawn and not self._told else ():
            if param in self._drawn:
                self._told = True
                here.loop.findings.find("DT509", name=param.name)
                return


def was_set(param: Any) -> None:
    """By the script, or from a file."""
    if (loop := _begun()) is not None:
        loop.made_anew.is_set(param)


def _begun() -> Any:
    loop = getattr(here, "loop", None)
    return loop if loop is not None and loop.in_course else None


def _differ(numbers: Any) -> bool:
    """Among each other: what is set to 0 or 1 was not drawn."""
    found = numbers.asnumpy()
    return bool(found.size and (found != found.flat[0]).any())


def _draws(initialise: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(initialise)
    def tells(self: Any, *args: Any, **said: Any) -> Any:
        draws = bool(self._deferred_init) and self._deferred_init[-1] is None  # else what it will be is given
        initialise(self, *args, **said)
        if draws and (loop := _begun()) is not None and not isinstance(self, gluon.Constant) and _differ(self._data[0]):
            loop.made_anew.drawn(self)

    return tells


gluon.Parameter._finish_deferred_init = _draws(gluon.Parameter._finish_deferred_init)
