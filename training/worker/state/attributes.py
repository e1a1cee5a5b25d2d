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

LARGEST = 4096  # most elements of an array that is sent as an attribute
DEPTH = 6  # most levels of nested values
_NO_VALUES = (mx.gluon.Parameter, mx.gluon.Block, mx.gluon.Trainer, logging.Logger, type)
_NO_VALUE: Any = object()


class Unfit(ValueError):
    """A value is too large to be sent as an attribute; the message names the value."""


def capture(owner: Any, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the attributes of `owner` that are values, ready for JSON. Raises Unfit if an array is too large."""
    return _fields(owner, without, type(owner).__name__, (id(owner),))


def restore(owner: Any, captured: dict[str, Any]) -> None:
    """Set the attributes of `owner` to the values captured from another process's object of the same kind."""
    for name, value in captured.items():
        try:
            setattr(owner, name, _decode(value, getattr(owner, name, None)))
        except AttributeError:  # a property without a setter depends on another attribute
            continue


def plain_array(value: Any) -> dict[str, Any]:
    """Return an array in a form for JSON, which `array_of` decodes to a NumPy array."""
    array = value if isinstance(value, np.ndarray) else value.asnumpy()
    return {"array": array.reshape(-1).tolist(), "shape": list(array.shape), "dtype": array.dtype.name}


def array_of(encoded: dict[str, Any]) -> Any:
    return np.array(encoded["array"], dtype=encoded["dtype"]).reshape(encoded["shape"])


def _fields(owner: Any, without: frozenset[str], path: str, enclosing_ids: tuple[int, ...]) -> dict[str, Any]:
    fields = {}
    for name, value in sorted(vars(owner).items()):
        if name in without:
            continue
        encoded = _encode(value, f"{path}.{name}", enclosing_ids)
        if encoded is not _NO_VALUE:
            fields[name] = encoded
    return fields


def _encode(value: Any, path: str, enclosing_ids: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | mx.nd.NDArray):
        if value.size > LARGEST:
            raise Unfit(
                f"{path} is an array of {value.size} values: keep the array in the optimizer's "
                "state (create_state), which is sent to workers that join"
            )
        if isinstance(value, np.ndarray):
            return plain_array(value)
        kind = "np" if isinstance(value, mx.np.ndarray) else "nd"
        return {**plain_array(value), kind: [value.context.device_type, value.context.device_id]}
    if (
        id(value) in enclosing_ids
        or len(enclosing_ids) > DEPTH
        or isinstance(value, _NO_VALUES)
        or callable(getattr(value, "acquire", 0))
    ):
        return _NO_VALUE
    inner_ids = (*enclosing_ids, id(value))
    if isinstance(value, list | tuple | deque):
        parts = [_encode(part, f"{path}[{i}]", inner_ids) for i, part in enumerate(value)]
        if any(part is _NO_VALUE for part in parts):
            return _NO_VALUE
        return {"deque": parts, "maxlen": value.maxlen} if isinstance(value, deque) else {"items": parts}
    if isinstance(value, dict):
        if not all(isinstance(key, str | int) or _is_flat_key(key) for key in value):
            return _NO_VALUE
        entries = [[key, _encode(part, f"{path}[{key!r}]", inner_ids)] for key, part in value.items()]
        return _NO_VALUE if any(part is _NO_VALUE for _, part in entries) else {"entries": entries}
    if hasattr(value, "__dict__") and not hasattr(value, "__code__") and not hasattr(value, "__self__"):
        return {"fields": _fields(value, frozenset(), path, inner_ids)}
    return _NO_VALUE


def _is_flat_key(key: Any) -> bool:
    return isinstance(key, tuple) and all(isinstance(part, str | int) for part in key)


def _decode(encoded: Any, present: Any) -> Any:
    """Decode a value; `present` is the value that it will replace.

    Objects and dictionaries are changed in place, as other references to the same objects may exist. A NumPy number
    keeps its type, as the script computes with that type.
    """
    if isinstance(present, np.generic) and isinstance(encoded, int | float):
        return type(present)(encoded)
    if not isinstance(encoded, dict):
        return encoded
    if "array" in encoded:
        array = array_of(encoded)
        kind = next((kind for kind in ("np", "nd") if kind in encoded), None)
        if kind is None:
            return array
        context = present.context if isinstance(present, mx.nd.NDArray) else mx.Context(*encoded[kind])
        return (mx.np if kind == "np" else mx.nd).array(array, ctx=context, dtype=array.dtype)
    if "deque" in encoded:
        return deque((_decode(part, None) for part in encoded["deque"]), encoded["maxlen"])
    if "items" in encoded:
        present_parts = (
            present
            if isinstance(present, list | tuple) and len(present) == len(encoded["items"])
            else [None] * len(encoded["items"])
        )
        parts = [_decode(part, present) for part, present in zip(encoded["items"], present_parts, strict=True)]
        return tuple(parts) if isinstance(present, tuple) else parts
    if "entries" in encoded:
        entries = present if isinstance(present, dict) else {}
        keys = [tuple(key) if isinstance(key, list) else key for key, _ in encoded["entries"]]
        parts = [_decode(part, entries.get(key)) for key, (_, part) in zip(keys, encoded["entries"], strict=True)]
        entries.clear()
        entries.update(zip(keys, parts, strict=True))
        return entries
    if present is not None:
        restore(present, encoded["fields"])
    return present
