"""What an object keeps in attributes, as plain data and back: an optimizer's own numbers, a schedule, a loss scaler.

Nothing is ever made from what arrives: numbers, texts and small arrays go back into the attributes of an object that
this worker's own script built, so a state from elsewhere can change values and nothing else. What is no value (a
function, a logger, a parameter) is left as the script made it.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip

LARGEST = 4096  # elements of an array that is still an attribute, and no state of its own
DEPTH = 6
_OTHERS = (mx.gluon.Parameter, mx.gluon.Block, mx.gluon.Trainer, logging.Logger, type)
_NOTHING: Any = object()


class Unfit(ValueError):
    """A value is too large to travel as an attribute; says which."""


def capture(owner: Any, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The attributes of `owner` that are values, as JSON takes them. Raises Unfit."""
    return _fields(owner, without, type(owner).__name__, (id(owner),))


def restore(owner: Any, captured: dict[str, Any]) -> None:
    """Gives `owner` the values that `capture` found in another process' object of the same kind."""
    for name, value in captured.items():
        try:
            setattr(owner, name, _back(value, getattr(owner, name, None)))
        except AttributeError:  # a property without a setter shows what another attribute holds
            continue


def plain_array(value: Any) -> dict[str, Any]:
    """As JSON takes it; `array_of` makes NumPy's of it again, whichever it was."""
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
    """`own` is what stands in that place now: objects and dictionaries are changed in place, as others may hold them
    too, and a number of NumPy's stays of its kind, as the script goes on to compute with it.
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
