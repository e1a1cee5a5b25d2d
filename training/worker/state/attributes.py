"""Conversion of an object's attributes to plain data and back: an optimizer's numbers, a schedule, a loss scaler.

No object is built from received data: numbers, strings and small arrays are written into the attributes of an object
that this worker's own script built, so a received state can change values and nothing else. Attributes that are not
values (a function, a logger, a parameter) stay as the script made them.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip

LARGEST = 4096  # elements of an array that still travels as an attribute
DEPTH = 6
_OTHERS = (mx.gluon.Parameter, mx.gluon.Block, mx.gluon.Trainer, logging.Logger, type)
_NOTHING: Any = object()


class Unfit(ValueError):
    """A value is too large to travel as an attribute; the message names it."""


def capture(owner: Any, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the attributes of `owner` that are values, ready for JSON. Raises Unfit if an array is too large."""
    return _fields(owner, without, type(owner).__name__, (id(owner),))


def restore(owner: Any, captured: dict[str, Any]) -> None:
    """Set the attributes of `owner` to the values captured from another process's object of the same kind."""
    for name, value in captured.items():
        try:
            setattr(owner, name, _back(value, getattr(owner, name, None)))
        except AttributeError:  # a property without a setter derives from another attribute
            continue


def plain_array(value: Any) -> dict[str, Any]:
    """Return an array ready for JSON; `array_of` makes a NumPy array of it, whichever kind it was."""
    array = value if isinstance(value, np.ndarray) else value.asnumpy()
    return {"array": array.reshape(-1).tolist(), "shape": list(array.shape), "dtype": array.dtype.name}


def array_of(encoded: dict[str, Any]) -> Any:
    return np.array(encoded["array"], dtype=encoded["dtype"]).reshape(encoded["shape"])


def _fields(owner: Any, without: frozenset[str], path: str, above: tuple[int, ...]) -> dict[str, Any]:
    fields = {}
    for name, value in sorted(vars(owner).items()):
        if name in without:
            continue
        encoded = _value(value, f"{path}.{name}", above)
        if encoded is not _NOTHING:
            fields[name] = encoded
    return fields


def _value(value: Any, path: str, above: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | mx.nd.NDArray):
        if value.size > LARGEST:
            raise Unfit(
                f"{path} is an array of {value.size} values: keep it in the optimizer's state "
                "(create_state), where it travels to workers that join"
            )
        if isinstance(value, np.ndarray):
            return plain_array(value)
        kind = "np" if isinstance(value, mx.np.ndarray) else "nd"
        return {**plain_array(value), kind: [value.context.device_type, value.context.device_id]}
    if id(value) in above or len(above) > DEPTH or isinstance(value, _OTHERS) or callable(getattr(value, "acquire", 0)):
        return _NOTHING
    inside = (*above, id(value))
    if isinstance(value, list | tuple | deque):
        parts = [_value(part, f"{path}[{i}]", inside) for i, part in enumerate(value)]
        if any(part is _NOTHING for part in parts):
            return _NOTHING
        return {"deque": parts, "maxlen": value.maxlen} if isinstance(value, deque) else {"items": parts}
    if isinstance(value, dict):
        if not all(isinstance(key, str | int) or _flat(key) for key in value):
            return _NOTHING
        entries = [[key, _value(part, f"{path}[{key!r}]", inside)] for key, part in value.items()]
        return _NOTHING if any(part is _NOTHING for _, part in entries) else {"entries": entries}
    if hasattr(value, "__dict__") and not hasattr(value, "__code__") and not hasattr(value, "__self__"):
        return {"fields": _fields(value, frozenset(), path, inside)}
    return _NOTHING


def _flat(key: Any) -> bool:
    return isinstance(key, tuple) and all(isinstance(part, str | int) for part in key)


def _back(encoded: Any, own: Any) -> Any:
    """Decode a value; `own` is the present value in its place.

    Objects and dictionaries are changed in place, as there may be other references to them. A NumPy number keeps its
    type, as the script continues to compute with it.
    """
    if isinstance(own, np.generic) and isinstance(encoded, int | float):
        return type(own)(encoded)
    if not isinstance(encoded, dict):
        return encoded
    if "array" in encoded:
        array = array_of(encoded)
        kind = next((kind for kind in ("np", "nd") if kind in encoded), None)
        if kind is None:
            return array
        context = own.context if isinstance(own, mx.nd.NDArray) else mx.Context(*encoded[kind])
        return (mx.np if kind == "np" else mx.nd).array(array, ctx=context, dtype=array.dtype)
    if "deque" in encoded:
        return deque((_back(part, None) for part in encoded["deque"]), encoded["maxlen"])
    if "items" in encoded:
        owns = (
            own
            if isinstance(own, list | tuple) and len(own) == len(encoded["items"])
            else [None] * len(encoded["items"])
        )
        parts = [_back(part, mine) for part, mine in zip(encoded["items"], owns, strict=True)]
        return tuple(parts) if isinstance(own, tuple) else parts
    if "entries" in encoded:
        mine = own if isinstance(own, dict) else {}
        keys = [tuple(key) if isinstance(key, list) else key for key, _ in encoded["entries"]]
        parts = [_back(part, mine.get(key)) for key, (_, part) in zip(keys, encoded["entries"], strict=True)]
        mine.clear()
        mine.update(zip(keys, parts, strict=True))
        return mine
    if own is not None:
        restore(own, encoded["fields"])
    return own
