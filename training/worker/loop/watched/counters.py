"""Numbers that a block counts up in its forward pass, as a loss that anneals does: not the job's, so they are told of.

A worker that joins begins with what they were at first, and a step that is void is counted twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet import gluon  # isort: skip
from dyntrain.training.worker.loop.batch.here import here

GLUONS = {"_counter", "_init_counter"}  # of recurrent cells, which begin anew with each sequence


def _numbers(block: Any) -> dict[str, float]:
    return {
        name: number
        for name, number in vars(block).items()
        if isinstance(number, int | float) and not isinstance(number, bool) and name not in GLUONS
    }


def _told(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def tells(self: Any, *args: Any, **said: Any) -> Any:
        if here.hand is None or not here.hand.is_first:
            return call(self, *args, **said)
        before = {**vars(type(self)), **_numbers(self)}
        sizes = {size for each in args for size in getattr(each, "shape", ())}
        made = call(self, *args, **said)
        for name, number in _numbers(self).items():
            was = before.get(name, number)
            if number in sizes and number != was + 1:
                continue  # it keeps how large its input was
            if number != was and (type(self), name) not in here.hand.told_of:
                here.hand.told_of.add((type(self), name))
                here.loop.findings.find("DT510", kind=type(self).__name__, name=name)
        return made

    return tells


gluon.Block.__call__ = _told(gluon.Block.__call__)
