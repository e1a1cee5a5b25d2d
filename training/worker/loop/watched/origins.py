"""From which batch the numbers in arrays are.

A script may carry samples, or what it computed of them, from one batch to the next: hidden states, a pool of images, a
queue of keys, running centres. In one process that is right. Here each worker would carry what its own shares left
behind, who joins has nothing, and nothing would look wrong. So what is computed of a batch's samples and draws is
followed from operator to operator; a loss that has any of an earlier batch in it is refused, at the step in which that
happens first.

What is written through a part of an array (`queue[2][:] = key`) is written to the array. Numbers are lost sight of
where they go by way of NumPy or of a backward pass.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
import numpy as np
from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.loop.watched.row_steps import NEVER, RowSteps, oldest, rows_of, written
from mxnet import autograd, gluon
from mxnet.base import _LIB, OpHandle, c_str, check_call

OF_EARLIER = (
    "the loss of step {now} has something in it that was computed in step {then}, of other samples: of those each "
    "worker has its own, and one that joins has none. Hidden states that go on with the rows of a batch: "
    "job.rows(state). Running numbers: job.memory(...) and epoch.sum(...). A loss that is added to those of earlier "
    "batches: backward() of this batch's alone. What is made in the first batch alike on all workers: before the loop. "
    "A buffer that is filled anew: set to 0 before that, all of it. Where each worker is to have its own, as a pool of "
    "images: job.epochs(..., changes='epoch')"
)
DRAWS = re.compile(
    "_(random|sample)_(?!pdf)|_shuffle|_npi_(uniform|normal|exponential|gamma|bernoulli|gumbel|laplace|rayleigh|choice|"
    "logistic|pareto|weibull|powerd|multinomial|shuffle)"
)
OF_SHAPES = (
    "zeros_like", "ones_like", "_npi_full_like", "shape_array", "size_array", "_contrib_MultiBoxPrior",
    "_contrib_arange_like", "_contrib_index_array",
)  # fmt: skip
LIKE = ("slice_like", "broadcast_like", "reshape_like", "_npx_reshape_like", "_identity_with_attr_like_rhs")
VIEWS = ("reshape", "detach", "as_np_ndarray", "as_nd_ndarray")  # made without an operator


def handle_of(operator: str) -> int:
    """By which MXNet calls it."""
    handle = OpHandle()
    check_call(_LIB.NNGetOpHandle(c_str(operator), ctypes.byref(handle)))
    return int(handle.value)


_names = mx.operator.get_all_registered_operators()
_draws = {handle_of(name) for name in _names if DRAWS.match(name)}
_of_shapes = {handle_of(name) for name in OF_SHAPES} | {
    handle_of(name) for name in _names if DRAWS.match(name) and name.endswith("_like")
}
_like = {handle_of(name) for name in LIKE}  # of the second they take the shape
_since: dict[int, int | RowSteps] = {}  # by ids of arrays: the first step whose samples or draws have a part in them
_of: dict[int, tuple[Any, slice]] = {}  # by ids of arrays that share another one's memory: that one, and which rows


def forget_all() -> None:
    """Another job begins to count steps."""
    _since.clear()


def begin(batch: Any) -> Any:
    """The samples of the batch in hand, for the script: an array of the dataset's own stays what it is."""
    assert here.hand is not None
    step, found = here.loop.position.step, 0

    def fresh(nested: Any) -> Any:
        nonlocal found
        if isinstance(nested, mx.nd.NDArray):
            found += 1
            array = nested.detach()
            _since[id(array)] = step
            return array
        if type(nested) in (list, tuple):
            return type(nested)(map(fresh, nested))
        return {key: fresh(each) for key, each in nested.items()} if type(nested) is dict else nested

    samples = fresh(batch)
    here.hand.holds_arrays = bool(found)
    return samples


def follows() -> bool:
    """Whether anything is, on this thread."""
    return not here.in_job and (here.hand is not None or (bool(_since) and hasattr(here, "loop")))


def follow(operator: int | None, inputs: Sequence[Any], outputs: Any, into: bool) -> None:
    """`into`: the outputs were there before, and are written to."""
    since = NEVER
    if operator not in _of_shapes:
        for each in inputs[:1] if operator in _like else inputs:
            if (found := _since.get(id(each))) is not None:
                since = min(since, oldest(found))
    if since == NEVER and operator in _draws and here.hand is not None and not into:
        since = here.loop.position.step
    if since != NEVER or into:
        for array in (outputs,) if isinstance(outputs, mx.nd.NDArray) else arrays(outputs):
            _put(array, since, into)


def _put(array: Any, since: int | RowSteps, into: bool) -> None:
    if since == NEVER or (into and id(array) in _of_the_job()):
        _since.pop(id(array), None)
    else:
        _since[id(array)] = since
    if into and id(array) in _of:
        whole, rows = _of[id(array)]
        _put(whole, written(_since.get(id(whole), NEVER), rows, oldest(since), whole.shape), into)


def _of_the_job() -> set[int]:
    """Ids of parameters: those that a forward pass writes are made equal by the job."""
    state, hand = here.loop.state, here.hand
    if hand is not None and hand.of_the_job is not None:
        return hand.of_the_job
    found = {id(data) for p in [*state.parameters, *state.kept.parameters] for data in p._data or ()}
    if hand is not None:
        hand.of_the_job = found
    return found


def arrays(nested: Any) -> Iterator[Any]:
    """Of what blocks and loaders take and give."""
    if isinstance(nested, mx.nd.NDArray):
        yield nested
    elif isinstance(nested, list | tuple | dict):
        for each in nested.values() if isinstance(nested, dict) else nested:
            yield from arrays(each)


def _refuse(heads: Any) -> None:
    """At the next sum, together with all workers."""
    hand = here.hand
    if hand is None or not here.loop.follows or here.loop.refusal is not None:
        return
    then = min((oldest(_since.get(id(head), NEVER)) for head in arrays(heads)), default=NEVER)
    if then < hand.follows_from:
        here.loop.refusal = OF_EARLIER.format(now=here.loop.position.step, then=then)


def _asks(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def asks(heads: Any, *args: Any, **said: Any) -> Any:
        _refuse(heads)
        return backward(heads, *args, **said)

    return asks


def _follows(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def makes(self: Any, *args: Any, **said: Any) -> Any:
        made = make(self, *args, **said)
        if follows():
            follow(None, [self, *arrays(args)], made, into=False)
        return made

    return makes


def _shows(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def shows(self: Any, *args: Any, **said: Any) -> Any:
        made = make(self, *args, **said)
        if made is not self and follows():
            follow(None, [self], made, into=False)
            if make.__name__ != "detach":  # which is there to let go of what the array was recorded with
                _of[id(made)] = self, slice(None)
        return made

    return shows


def _takes(getitem: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(getitem)
    def takes(self: Any, key: Any) -> Any:
        made = getitem(self, key)
        if made is not self and follows():
            found, rows = _since.get(id(self), NEVER), rows_of(key, self.shape)
            if isinstance(found, RowSteps) and rows is not None:
                found = found.of(rows)
            keys = [oldest(_since.get(id(each), NEVER)) for each in arrays(key)]
            _put(made, min([oldest(found), *keys]), into=False)
            if (shared := rows_of(key, self.shape, whole=True)) is not None and shared.step in (None, 1):
                _of[id(made)] = self, shared
        return made

    return takes


def _sets(setitem: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(setitem)
    def sets(self: Any, key: Any, value: Any) -> None:
        if not follows():
            setitem(self, key, value)
            return
        before, shape = _since.get(id(self), NEVER), self.shape
        setitem(self, key, value)
        _put(self, written(before, rows_of(key, shape, whole=True), _since_of(value), shape), into=True)

    return sets


def _since_of(value: Any) -> int:
    """What the script makes of NumPy's arrays is of the batch in hand, if that came as nothing else."""
    if isinstance(value, mx.nd.NDArray):
        return oldest(_since.get(id(value), NEVER))
    hand = here.hand
    unseen = hand is not None and not hand.holds_arrays and isinstance(value, np.ndarray) and value.ndim > 0
    return here.loop.position.step if unseen else NEVER


def _forgets(delete: Callable[..., Any]) -> Callable[..., Any]:
    def forgets(self: Any, since: Callable[..., Any] = _since.pop, of: Callable[..., Any] = _of.pop) -> None:
        since(id(self), None)
        of(id(self), None)
        delete(self)

    return forgets


for _kind in (mx.nd.NDArray, mx.np.ndarray):
    for _name, _hook in (*((view, _shows) for view in VIEWS), ("__getitem__", _takes), ("__setitem__", _sets)):
        if _name in vars(_kind):
            setattr(_kind, _name, _hook(vars(_kind)[_name]))
    if "backward" in vars(_kind):
        _kind.backward = _asks(_kind.backward)
mx.nd.NDArray.__del__ = _forgets(mx.nd.NDArray.__del__)
autograd.backward = _asks(autograd.backward)
gluon.HybridBlock._call_cached_op = _follows(gluon.HybridBlock._call_cached_op)
