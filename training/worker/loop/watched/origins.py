"""From which batch the numbers in arrays are: what is computed of a batch's samples and draws is followed from operator
to operator, by the identity of the arrays.

What is written through a part of an array (`queue[2][:] = key`) is written to the array. So are gradients of arrays
that no trainer has, and what `autograd.grad` makes. Numbers are lost sight of where they go by way of NumPy.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.loop.batch.here import here
from dyntrain.training.worker.loop.watched import made_of_weights
from dyntrain.training.worker.loop.watched.row_steps import NEVER, RowSteps, oldest, written
from mxnet import autograd
from mxnet.base import _LIB, OpHandle, c_str, check_call

DRAWS = re.compile(
    "_(random|sample)_(?!pdf)|_shuffle|_npi_(uniform|normal|exponential|gamma|bernoulli|gumbel|laplace|rayleigh|choice|"
    "logistic|pareto|weibull|powerd|multinomial|shuffle)"
)
OF_SHAPES = (
    "zeros_like", "ones_like", "_npi_full_like", "shape_array", "size_array", "_contrib_MultiBoxPrior",
    "_contrib_arange_like", "_contrib_index_array",
)  # fmt: skip
LIKE = ("slice_like", "broadcast_like", "reshape_like", "_npx_reshape_like", "_identity_with_attr_like_rhs")


def handle_of(operator: str) -> int:
    """By which MXNet calls it."""
    handle = OpHandle()
    check_call(_LIB.NNGetOpHandle(c_str(operator), ctypes.byref(handle)))
    return int(handle.value)


_names = mx.operator.get_all_registered_operators()
_draws = {handle_of(name) for name in _names if DRAWS.match(name)}
_dropouts = {handle_of(name) for name in _names if name in ("Dropout", "_npx_dropout")}  # while they train
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
    step = here.loop.position.step

    def fresh(nested: Any) -> Any:
        if isinstance(nested, mx.nd.NDArray):
            array = nested.detach()
            _since[id(array)] = step
            return array
        if type(nested) in (list, tuple):
            return type(nested)(map(fresh, nested))
        return {key: fresh(each) for key, each in nested.items()} if type(nested) is dict else nested

    return fresh(batch)


def follows() -> bool:
    """Whether anything is, on this thread."""
    return not here.in_job and (
        here.hand is not None or (bool(_since or made_of_weights.any_given()) and hasattr(here, "loop"))
    )


def follow(operator: int | None, inputs: Sequence[Any], outputs: Any, into: bool) -> None:
    """`into`: the outputs were there before, and are written to."""
    since = NEVER
    if operator not in _of_shapes:
        for each in inputs[:1] if operator in _like else inputs:
            if (found := _since.get(id(each))) is not None:
                since = min(since, oldest(found))
    if since == NEVER and here.hand is not None and _is_drawn(operator):
        since = here.loop.position.step
    made = (outputs,) if isinstance(outputs, mx.nd.NDArray) else tuple(arrays(outputs))
    made_of_weights.follow(inputs, made, into)
    if since != NEVER or into:
        for array in made:
            put(array, since, into)


def draws(operator: int | None) -> bool:
    return operator in _draws


def _is_drawn(operator: int | None) -> bool:
    return operator in _draws or (operator in _dropouts and autograd.is_training())


def put(array: Any, since: int | RowSteps, into: bool) -> None:
    if since == NEVER:
        _since.pop(id(array), None)
    else:
        _since[id(array)] = since
    if into and id(array) in _of:
        whole, rows = _of[id(array)]
        put(whole, written(_since.get(id(whole), NEVER), rows, oldest(since), whole.shape), into)


def since_of(array: Any) -> int | RowSteps:
    return _since.get(id(array), NEVER)


def share(view: Any, whole: Any, rows: slice) -> None:
    """The memory of these rows is that of the view."""
    _of[id(view)] = whole, rows


def forget(
    array: Any,
    since: Callable[..., Any] = _since.pop,
    of: Callable[..., Any] = _of.pop,
    weights_forget: Callable[..., Any] = made_of_weights.forget,
) -> None:
    """It is deleted: another one may have its id. Also at the interpreter's end, where a module's names may be gone."""
    since(id(array), None)
    of(id(array), None)
    weights_forget(array)


def arrays(nested: Any) -> Iterator[Any]:
    """Of what blocks and loaders take and give."""
    if isinstance(nested, mx.nd.NDArray):
        yield nested
    elif isinstance(nested, list | tuple | dict):
        for each in nested.values() if isinstance(nested, dict) else nested:
            yield from arrays(each)
