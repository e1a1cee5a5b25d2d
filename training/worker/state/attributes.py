"""Converts the attributes of optimizers, rate schedules and loss scalers to plain data and back.

No object is built from received data. Numbers, strings and small arrays are written into attributes of an object that
this worker's own script built, so received data can only change values. Attributes that are not values, such as a
function, a logger or a parameter, are not changed.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip

MAX_ARRAY_VALUES = 4096  # most elements of an array that is sent as an attribute
MAX_DEPTH = 6  # most levels of nested values
_SKIPPED_TYPES = (mx.gluon.Parameter, mx.gluon.Block, mx.gluon.Trainer, logging.Logger, type)  # not sent
_NO_VALUE: Any = object()  # stands for an attribute that is not sent


class AttributeTooLarge(ValueError):
    """The value of an attribute is too large to be sent. The message names the attribute."""


def capture(owner: Any, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the attributes of `owner` that are plain values, in a form that JSON can represent.

    Raises AttributeTooLarge if an array is too large.
    """
    return _encoded_attributes(owner, without, type(owner).__name__, (id(owner),))


def restore(owner: Any, captured: dict[str, Any]) -> None:
    """Set the attributes of `owner` to the values captured from another process's object of the same kind."""
    for name, value in captured.items():
        try:
            setattr(owner, name, _decode(value, getattr(owner, name, None)))
        except AttributeError:  # a property without a setter depends on another attribute
            continue


def plain_array(value: Any) -> dict[str, Any]:
    """Return an array in a form that JSON can represent, from which `array_of` makes a NumPy array."""
    host_array = value if isinstance(value, np.ndarray) else value.asnumpy()
    return {"array": host_array.reshape(-1).tolist(), "shape": list(host_array.shape), "dtype": host_array.dtype.name}


def array_of(encoded: dict[str, Any]) -> Any:
    return np.array(encoded["array"], dtype=encoded["dtype"]).reshape(encoded["shape"])


def _encoded_attributes(
    owner: Any, without: frozenset[str], path: str, enclosing_ids: tuple[int, ...]
) -> dict[str, Any]:
    encoded_fields = {}
    for name, value in sorted(vars(owner).items()):
        if name in without:
            continue
        encoded_value = _encode(value, f"{path}.{name}", enclosing_ids)
        if encoded_value is not _NO_VALUE:
            encoded_fields[name] = encoded_value
    return encoded_fields


def _encode(value: Any, path: str, enclosing_ids: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | mx.nd.NDArray):
        if value.size > MAX_ARRAY_VALUES:
            raise AttributeTooLarge(
                f"{path} is an array of {value.size} values: keep the array in the optimizer's "
                "state (create_state), which is sent to workers that join"
            )
        if isinstance(value, np.ndarray):
            return plain_array(value)
        array_kind = "np" if isinstance(value, mx.np.ndarray) else "nd"
        return {**plain_array(value), array_kind: [value.context.device_type, value.context.device_id]}
    if (
        id(value) in enclosing_ids
        or len(enclosing_ids) > MAX_DEPTH
        or isinstance(value, _SKIPPED_TYPES)
        or callable(getattr(value, "acquire", 0))
    ):
        return _NO_VALUE
    path_ids = (*enclosing_ids, id(value))
    if isinstance(value, list | tuple | deque):
        encoded_parts = [_encode(item, f"{path}[{item_number}]", path_ids) for item_number, item in enumerate(value)]
        if any(item is _NO_VALUE for item in encoded_parts):
            return _NO_VALUE
        return (
            {"deque": encoded_parts, "maxlen": value.maxlen} if isinstance(value, deque) else {"items": encoded_parts}
        )
    if isinstance(value, dict):
        if not all(isinstance(key, str | int) or _is_plain_tuple(key) for key in value):
            return _NO_VALUE
        encoded_entries = [[key, _encode(item, f"{path}[{key!r}]", path_ids)] for key, item in value.items()]
        return _NO_VALUE if any(item is _NO_VALUE for _, item in encoded_entries) else {"entries": encoded_entries}
    if hasattr(value, "__dict__") and not hasattr(value, "__code__") and not hasattr(value, "__self__"):
        return {"fields": _encoded_attributes(value, frozenset(), path, path_ids)}
    return _NO_VALUE


def _is_plain_tuple(key: Any) -> bool:
    return isinstance(key, tuple) and all(isinstance(part, str | int) for part in key)


def _decode(encoded: Any, present: Any) -> Any:
    """Decode an encoded value. `present` is the value that the decoded value will replace.

    Objects and dictionaries are changed in place, as the script may have other references to such objects. If `present`
    is a NumPy number, the decoded number gets the type of `present`.
    """
    if isinstance(present, np.generic) and isinstance(encoded, int | float):
        return type(present)(encoded)
    if not isinstance(encoded, dict):
        return encoded
    if "array" in encoded:
        decoded_array = array_of(encoded)
        array_kind = next((array_kind for array_kind in ("np", "nd") if array_kind in encoded), None)
        if array_kind is None:
            return decoded_array
        context = present.context if isinstance(present, mx.nd.NDArray) else mx.Context(*encoded[array_kind])
        return (mx.np if array_kind == "np" else mx.nd).array(decoded_array, ctx=context, dtype=decoded_array.dtype)
    if "deque" in encoded:
        return deque((_decode(encoded_part, None) for encoded_part in encoded["deque"]), encoded["maxlen"])
    if "items" in encoded:
        present_items = (
            present
            if isinstance(present, list | tuple) and len(present) == len(encoded["items"])
            else [None] * len(encoded["items"])
        )
        decoded_parts = [
            _decode(encoded_part, present_item)
            for encoded_part, present_item in zip(encoded["items"], present_items, strict=True)
        ]
        return tuple(decoded_parts) if isinstance(present, tuple) else decoded_parts
    if "entries" in encoded:
        present_entries = present if isinstance(present, dict) else {}
        entry_keys = [tuple(key) if isinstance(key, list) else key for key, _ in encoded["entries"]]
        decoded_parts = [
            _decode(encoded_part, present_entries.get(key))
            for key, (_, encoded_part) in zip(entry_keys, encoded["entries"], strict=True)
        ]
        present_entries.clear()
        present_entries.update(zip(entry_keys, decoded_parts, strict=True))
        return present_entries
    if present is not None:
        restore(present, encoded["fields"])
    return present
