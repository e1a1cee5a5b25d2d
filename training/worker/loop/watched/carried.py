"""What a script carries from one batch to the next: hidden states, a pool of images, a queue of keys, running centres.

In one process that is right. Here each worker would carry what its own shares left behind, who joins has nothing, and
nothing would look wrong. So a loss that has anything of an earlier batch in it is told of, in the step in which that
happens first. Here are the methods of arrays by which their numbers go on; operators are in `invoked`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.loop.watched.origins import arrays, follow, follows, forget, put, share, since_of
from dyntrain.training.worker.loop.watched.outside import is_of_trained_weights, mark, place, tell
from dyntrain.training.worker.loop.watched.row_steps import NEVER, RowSteps, oldest, rows_of, written
from mxnet import autograd, gluon

VIEWS = ("reshape", "detach", "as_np_ndarray", "as_nd_ndarray")  # made without an operator


def _look(heads: Any) -> None:
    hand = here.hand
    if hand is None:
        return
    then = min((oldest(since_of(head)) for head in arrays(heads)), default=NEVER)
    if then < 0:
        tell(then)
    elif then < hand.follows_from and here.loop.follows:
        here.loop.findings.find("DT501", now=here.loop.position.step, then=then)


def _asks(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def asks(heads: Any, *args: Any, **said: Any) -> Any:
        _look(heads)
        if here.hand is not None:
            here.loop.updates.before_more(here.hand)
        return backward(heads, *args, **said)

    return asks


def _differentiates(grad: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(grad)
    def differentiates(heads: Any, *args: Any, **said: Any) -> Any:
        made = grad(heads, *args, **said)
        if follows():
            follow(None, [*arrays(heads)], made, into=False)
        return made

    return differentiates


def _follows(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def makes(self: Any, *args: Any, **said: Any) -> Any:
        made = make(self, *args, **said)
        if follows():
            follow(None, [self, *arrays(args)], made, into=False)
        return made

    return makes


def _executed(give: Callable[..., Any]) -> Callable[..., Any]:
    """What an executor of a symbol gives, whose operators are not seen."""

    @functools.wraps(give)
    def gives(self: Any) -> Any:
        made = give(self)
        if follows():
            follow(None, of := [*self.arg_arrays, *self.aux_arrays], made, into=False)
            if (where := place()) is not None and any(map(is_of_trained_weights, of)):
                mark(made, where)
        return made

    return gives


def _shows(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def shows(self: Any, *args: Any, **said: Any) -> Any:
        made = make(self, *args, **said)
        if made is not self and follows():
            follow(None, [self], made, into=False)
            if make.__name__ != "detach":  # which is there to let go of what the array was recorded with
                share(made, self, slice(None))
        return made

    return shows


def _takes(getitem: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(getitem)
    def takes(self: Any, key: Any) -> Any:
        made = getitem(self, key)
        if made is not self and follows():
            found, rows = since_of(self), rows_of(key, self.shape)
            if isinstance(found, RowSteps) and rows is not None:
                found = found.of(rows)
            keys = [oldest(since_of(each)) for each in arrays(key)]
            put(made, min([oldest(found), *keys]), into=False)
            if (shared := rows_of(key, self.shape, whole=True)) is not None and shared.step in (None, 1):
                share(made, self, shared)
        return made

    return takes


def _sets(setitem: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(setitem)
    def sets(self: Any, key: Any, value: Any) -> None:
        if not follows():
            setitem(self, key, value)
            return
        before, shape = since_of(self), self.shape
        setitem(self, key, value)
        put(self, written(before, rows_of(key, shape, whole=True), oldest(since_of(value)), shape), into=True)

    return sets


def _forgets(delete: Callable[..., Any]) -> Callable[..., Any]:
    def forgets(self: Any, forget: Callable[..., Any] = forget) -> None:
        forget(self)
        delete(self)

    return forgets


for _kind in (mx.nd.NDArray, mx.np.ndarray):
    for _name, _hook in (*((view, _shows) for view in VIEWS), ("__getitem__", _takes), ("__setitem__", _sets)):
        if _name in vars(_kind):
            setattr(_kind, _name, _hook(vars(_kind)[_name]))
    if "backward" in vars(_kind):
        _kind.backward = _asks(_kind.backward)
mx.nd.NDArray.__del__ = _forgets(mx.nd.NDArray.__del__)
autograd.backward, autograd.grad = _asks(autograd.backward), _differentiates(autograd.grad)
mx.executor.Executor._get_outputs = _executed(mx.executor.Executor._get_outputs)
gluon.HybridBlock._call_cached_op = _follows(gluon.HybridBlock._call_cached_op)
