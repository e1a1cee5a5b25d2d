"""Weights of no trainer that a script is given or sets: they go with the job only where it keeps them, or are of a net
that is made within the batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet import gluon  # isort: skip
from dyntrain.training.worker.loop.batch.hand import Hand
from dyntrain.training.worker.loop.batch.here import caller, here
from dyntrain.training.worker.loop.watched import made_of_weights
from dyntrain.training.worker.loop.watched.between import gave, set_between, wrote
from dyntrain.training.worker.loop.watched.made_anew import was_set

_made_in: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # the step of a parameter that was made in one


def tell_of_not_kept(hand: Hand, array: Any) -> None:
    """Before it is written to."""
    for weight, param in hand.not_kept:
        if weight is array:
            here.loop.findings.find("DT506", name=param.name)


def _sets(set_data: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(set_data)
    def looks(self: Any, data: Any) -> Any:
        was_set(self)
        if not here.in_block and not caller(1).startswith("dyntrain."):
            if here.hand is None:
                wrote(self)
            elif _is_not_kept(here.hand, self):
                here.loop.findings.find("DT506", name=self.name)
        return set_data(self, data)

    return looks


def _gives(data: Callable[..., Any]) -> Callable[..., Any]:
    """Weights to a script, which may write to them."""

    @functools.wraps(data)
    def looks(self: Any, *args: Any, **said: Any) -> Any:
        found, hand = data(self, *args, **said), here.hand
        arrays = found if isinstance(found, list) else [found]
        made_of_weights.gave(self, arrays)
        if hand is None:
            gave(self, arrays)
        elif here.in_block:
            if set_between(self) and _is_not_kept(hand, self):
                here.loop.findings.find("DT507", name=self.name)
        elif not hand.updates and _is_not_kept(hand, self):
            hand.not_kept += [(each, self) for each in arrays]
        return found

    return looks


def _is_not_kept(hand: Hand, param: Any) -> bool:
    """Whether neither a trainer nor the job has it, and it was not made for this batch."""
    if hand.kept is None:
        state = here.loop.state
        hand.kept = {id(each) for each in [*state.parameters, *state.kept.parameters]}
    return id(param) not in hand.kept and _made_in.get(param) != here.loop.position.step


def _makes(initialises: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(initialises)
    def looks(self: Any, *args: Any, **said: Any) -> Any:
        if here.hand is not None:
            _made_in[self] = here.loop.position.step
        return initialises(self, *args, **said)

    return looks


gluon.Parameter.data, gluon.Parameter.list_data = _gives(gluon.Parameter.data), _gives(gluon.Parameter.list_data)
gluon.Parameter.set_data = _sets(gluon.Parameter.set_data)
gluon.Parameter._init_impl = _makes(gluon.Parameter._init_impl)
