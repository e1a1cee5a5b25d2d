"""What a script makes of trained weights outside of its batches: pseudo-labels, features, a copy of the net as a
teacher, adversarial samples, how much each weight counts (EWC).

Who begins in the second of two loops runs the lines between them with the weights that it began with, and who joins
within an epoch those where the epoch begins with later ones. So what is made there of what a net gives, of gradients
through it, of a deep copy of it, and between loops of weights and their gradients, too, is marked (`outside`). Where it
has a part in a loss, and the job does not keep it, the script is told. What goes on as NumPy's numbers, or
as rows of a dataset, is not seen.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.loop.watched.origins import follow, follows
from dyntrain.training.worker.loop.watched.outside import made_at, mark, place, tell
from mxnet import autograd, gluon


def _calls(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def marks(self: Any, *args: Any, **said: Any) -> Any:
        made = call(self, *args, **said)
        if (where := place()) is not None and here.loop.outside.is_of_trained(self):
            mark(made, where)
        return made

    return marks


def _gives(give: Callable[..., Any]) -> Callable[..., Any]:
    """Weights to a block in a batch, whose operators may not be seen."""

    @functools.wraps(give)
    def looks(self: Any, *args: Any, **said: Any) -> Any:
        made = give(self, *args, **said)
        looks_at_it = here.in_block and here.hand is not None and here.loop.outside.known.made
        if looks_at_it and (then := made_at(made)) is not None:
            tell(then)
        return made

    return looks


def _copied(self: Any, memo: dict[int, Any]) -> Any:
    """`copy.deepcopy`, which goes by way of bytes."""
    kind, how, numbers = self.__reduce__()
    memo[id(self)] = made = kind(*how)
    made.__setstate__(numbers)
    if (where := place()) is not None and here.loop.outside.trains(self):
        mark(made, where)
    elif follows():
        follow(None, [self], made, into=False)
    return made


def _differentiates(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def notes(heads: Any, *args: Any, **said: Any) -> Any:
        if place() is not None and made_at(heads) is not None:
            here.loop.outside.known.differentiated = True
        return backward(heads, *args, **said)

    return notes


def _saves(save: Callable[..., Any]) -> Callable[..., Any]:
    """Where one worker writes, as job.writes says, all read the same."""

    @functools.wraps(save)
    def notes(file: Any, data: Any, *more: Any) -> Any:
        result = save(file, data, *more)
        if place() is not None:
            files, then = here.loop.outside.known.files, made_at(data)
            files.pop(os.path.realpath(file), None)
            if then is not None and not here.loop.membership.writes:
                files[os.path.realpath(file)] = then
        return result

    return notes


def _loads(load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def marks(file: Any, *more: Any, **said: Any) -> Any:
        made = load(file, *more, **said)
        files = here.loop.outside.known.files if hasattr(here, "loop") else {}
        if files and (then := files.get(os.path.realpath(file))) is not None:
            mark(made, then)
        return made

    return marks


gluon.Block.__call__ = _calls(gluon.Block.__call__)
gluon.Parameter.data, gluon.Parameter.list_data = _gives(gluon.Parameter.data), _gives(gluon.Parameter.list_data)
mx.nd.NDArray.__deepcopy__ = _copied
autograd.backward = _differentiates(autograd.backward)
for _kind in (mx.nd.NDArray, mx.np.ndarray):
    if "backward" in vars(_kind):
        _kind.backward = _differentiates(_kind.backward)
for _module in (mx.nd, mx.npx):
    _module.save, _module.load = _saves(_module.save), _loads(_module.load)
