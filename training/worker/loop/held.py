"""Find arrays, parameters, numbers and generators in a script's variables, with the variables' names.

`dyntrain check` compares the values of a script's variables, to report variables that differ on a worker that joined.
"""

from __future__ import annotations

import pickle
import random
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip

from dyntrain.training.checks.findings import LIBRARIES
from mxnet import gluon

MOST_NUMBERS = 2_000_000  # numbers in an array; larger arrays are datasets, not state
MOST_ITEMS, MOST_NESTED = 500, 4  # most items of a container that is searched, most containers in each other
GENERATOR_TYPES = (random.Random, np.random.Generator, np.random.RandomState)


def describe_arrays(describe: Callable[[Any], Any], excluded: Iterable[Any] = ()) -> tuple[dict[str, Any], list[str]]:
    """Return `describe(array)` for each array in the script's variables, by name, and the names of all variables.

    The script's variables are those of its functions on the call stack, outermost first, and of these functions'
    modules. Arrays of the objects in `excluded` are left out. The returned names are sorted, and include variables
    without an array.
    """
    arrays: dict[str, Any] = {}
    names, seen_ids = set[str](), {id(excluded_object) for excluded_object in excluded}
    for frame in reversed([*_script_frames(sys._getframe(1))]):
        variables = frame.f_globals | frame.f_locals
        for name, value in variables.items():
            if not name.startswith("__"):
                names.add(name)
                for array_name, array in _arrays_in(name, value, seen_ids, MOST_NESTED):
                    arrays.setdefault(array_name, describe(array))
    return arrays, sorted(names)


def _script_frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        if _is_of_script(str(frame.f_globals.get("__name__"))):
            yield frame
        frame = frame.f_back


def _is_of_script(module: str) -> bool:
    """Whether a module is part of the user's script, not of a library."""
    top_module = module.partition(".")[0]
    if top_module in LIBRARIES or (top_module in sys.stdlib_module_names and top_module != "__main__"):
        return False
    return "site-packages" not in (getattr(sys.modules.get(top_module), "__file__", None) or "")


def _arrays_in(name: str, value: Any, seen_ids: set[int], depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in a variable's value with their names; an array with several names is yielded once.

    Every variable's number is yielded, because Python may use one object for the equal numbers of several variables.
    """
    if isinstance(value, bool | int | float | np.number):
        yield name, np.float64(value)
        return
    if id(value) in seen_ids or isinstance(value, type):
        return
    seen_ids.add(id(value))
    if isinstance(value, gluon.Parameter):
        value = value._data[0] if value._data else None
    if isinstance(value, mx.nd.NDArray):
        if value.size <= MOST_NUMBERS:
            yield name, value.asnumpy()
    elif isinstance(value, np.ndarray):
        if value.size <= MOST_NUMBERS and value.dtype.kind in "biuf":
            yield name, value
    elif isinstance(value, GENERATOR_TYPES):
        generator_state = value.bit_generator if isinstance(value, np.random.Generator) else value
        yield name, np.float64(zlib.crc32(pickle.dumps(generator_state)))
    elif depth:
        for item_name, item in _named_items(name, value):
            yield from _arrays_in(item_name, item, seen_ids, depth - 1)


def _named_items(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, gluon.Block):
        yield from _formatted_items(name, value.collect_params(), ".{}")
    if isinstance(value, dict | gluon.ParameterDict):
        yield from _formatted_items(name, value, "[{!r}]")
    elif isinstance(value, list | tuple | deque):
        if len(value) <= MOST_ITEMS:
            yield from ((f"{name}[{index}]", item) for index, item in enumerate([*value]))
    elif _is_of_script(type(value).__module__) and hasattr(value, "__dict__"):
        yield from _formatted_items(name, vars(value), ".{}")


def _formatted_items(name: str, values: Any, name_format: str) -> Iterator[tuple[str, Any]]:
    if len(values.keys()) <= MOST_ITEMS:
        yield from ((name + name_format.format(key), item) for key, item in [*values.items()])
