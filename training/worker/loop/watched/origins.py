"""From which batch the numbers in arrays are.

A script may carry samples, or what it computed of them, from one batch to the next: hidden states, a pool of images, a
queue of keys, running centres. In one process that is right. Here each worker would carry what its own shares left
behind, who joins has nothing, and nothing would look wrong. So what is computed of a batch's samples and draws is
followed from operator to operator; a loss that has any of an earlier batch in it is refused, at the step in which that
happens first.

Numbers are lost sight of where they go by way of NumPy or of a backward pass.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.loop.batch.here import here
from mxnet import autograd, gluon
from mxnet.base import _LIB, OpHandle, c_str, check_call

OF_EARLIER = (
    "the loss of step {now} has something in it that was computed in step {then}, of other samples: of those each "
    "worker has its own, and one that joins has none. Hidden states that go on with the rows of a batch: "
    "job.rows(state). What was computed before the loop, of all samples, or of none, may be used. Where each worker is "
    "to have its own, as a pool of images: job.epochs(..., changes='epoch')"
)
DRAWS = re.compile("_(random|sample)_(?!pdf)|_npi_(uniform|normal|exponential|gamma|bernoulli|gumbel|laplace|rayleigh)")
OF_SHAPES = ("zeros_like", "ones_like", "shape_array", "size_array", "_contrib_MultiBoxPrior", "_contrib_arange_like")
VIEWS = ("__getitem__", "reshape", "detach", "as_np_ndarray", "as_nd_ndarray")  # made without an operator


def handle_of(operator: str) -> int:
    """By which MXNet calls it."""
    handle = OpHandle()
    check_call(_LIB.NNGetOpHandle(c_str(operator), ctypes.byref(handle)))
    return int(handle.value)


_draws = {handle_of(name) for name in mx.operator.get_all_registered_operators() if DRAWS.match(name)}
_of_shapes = {handle_of(name) for name in OF_SHAPES}
_since: dict[int, int] = {}  # by ids of arrays: the first step whose samples or draws have a part in them


def begin(batch: Any) -> None:
    """The samples of the batch in hand, as the script gets them."""
    for array in arrays(batch):
        _since[id(array)] = here.loop.position.step


def follows() -> bool:
    """Whether anything is, on this thread."""
    return (here.hand is not None or bool(_since)) and not here.in_job


def follow(operator: int | None, inputs: Sequence[Any], outputs: Any, into: bool) -> None:
    """`into`: the outputs were there before, and are written to."""
    known = [_since[key] for each in inputs if (key := id(each)) in _since]
    if known and operator not in _of_shapes:
        since = min(known)
    elif operator in _draws and here.hand is not None and not into:
        since = here.loop.position.step
    else:
        for array in arrays(outputs) if into else ():
            _since.pop(id(array), None)
        return
    state = _of_the_job() if into else ()
    for array in arrays(outputs):
        if id(array) not in state:
            _since[id(array)] = since


def _of_the_job() -> set[int]:
    """Ids of parameters: those that a forward pass writes are made equal by the job."""
    if here.hand is None:
        return set()
    state = here.loop.state
    return {id(data) for p in [*state.parameters, *state.kept.parameters] for data in p._data or ()}


def arrays(nested: Any) -> Iterator[Any]:
    """Of what blocks and loaders take and give."""
    if isinstance(nested, mx.nd.NDArray):
        yield nested
    elif isinstance(nested, list | tuple | dict):
        for each in nested.values() if isinstance(nested, dict) else nested:
            yield from arrays(each)


def _refuse(heads: Any) -> None:
    """At the next sum, together with all workers."""
    if here.hand is None or not here.loop.follows:
        return
    then = min((_since.get(id(head), here.loop.anchor.step) for head in arrays(heads)), default=0)
    if then < here.loop.anchor.step and here.loop.refusal is None:
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


def _forgets(delete: Callable[..., Any]) -> Callable[..., Any]:
    def forgets(self: Any, pop: Callable[..., Any] = _since.pop) -> None:
        pop(id(self), None)
        delete(self)

    return forgets


for _kind in (mx.nd.NDArray, mx.np.ndarray):
    for _name in VIEWS:
        if _name in vars(_kind):
            setattr(_kind, _name, _follows(vars(_kind)[_name]))
    if "backward" in vars(_kind):
        _kind.backward = _asks(_kind.backward)
mx.nd.NDArray.__del__ = _forgets(mx.nd.NDArray.__del__)
autograd.backward = _asks(autograd.backward)
gluon.HybridBlock._call_cached_op = _follows(gluon.HybridBlock._call_cached_op)
