"""Keeps values that a script needs to continue at the job's position, as a part of the training state.

The values are numbers, strings and small arrays, which a script reads and sets as attributes. `keep` writes the values
into the state while no gradients are in flight. `recall` reads the values back after each epoch and segment and after a
void step, so all workers, including workers that joined later, have values of the same types.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.worker.state.attributes import MAX_ARRAY_VALUES, array_of, plain_array

MAX_JSON_CHARACTERS = 200_000  # characters of JSON, which is in the header of every state
MAX_DEPTH = 20  # most levels of nested values


class Memory:
    """The object that one call of `job.memory` returns.

    A script must set each attribute to the same value on every worker.

    A script cannot add attributes that the call of `job.memory` did not name.
    """

    def __init__(self, **values: Any) -> None:
        vars(self)["_values"] = {}
        for name, value in values.items():
            if name.startswith("_"):
                raise ValueError(
                    f"job.memory({name}=...) fails: a name that begins with an underscore cannot be an attribute"
                )
            self._values[name] = _copy_value(name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in vars(self).get("_values", {}):
            raise AttributeError(_unknown_name_text(name))
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._values:
            raise AttributeError(_unknown_name_text(name))
        self._values[name] = _copy_value(name, value)

    def __dir__(self) -> list[str]:
        return sorted(self._values)

    def __repr__(self) -> str:
        return f"Memory({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"


class Memories:
    """All `job.memory` objects of a job.

    The methods' argument `own` is the state's dictionary for the job's own values.
    """

    def __init__(self) -> None:
        self._memories: list[Memory] = []

    def add(self, memory: Memory) -> None:
        """Add a `job.memory` object.

        Raises ValueError if a name in `memory` is in use, as all objects share one namespace.
        """
        repeated_names = {name for known_memory in self._memories for name in dir(known_memory)} & set(dir(memory))
        if repeated_names:
            raise ValueError(f"job.memory({min(repeated_names)}=...) is called a second time: give each name only once")
        self._memories.append(memory)

    def keep(self, own: dict[str, Any]) -> None:
        """Write the values of all `job.memory` objects into the state.

        Raises ValueError for a value that cannot be encoded, for example in a list that the script has changed.
        """
        if self._memories:
            own["memory"] = {
                name: _encode(name, value) for values in self._all_values() for name, value in values.items()
            }

    def recall(self, own: Mapping[str, Any]) -> None:
        """Read the values of all `job.memory` objects back from the state.

        Raises ValueError if the values together are too large.

        A list, dictionary or array is changed in place, as the script may have another reference to the same object.
        """
        encoded_values = own.get("memory", {})
        if len(json_text := json.dumps(encoded_values)) > MAX_JSON_CHARACTERS:
            raise ValueError(
                f"job.memory holds {len(json_text)} characters as JSON, and must stay below {MAX_JSON_CHARACTERS}: "
                "it travels with every "
                "state; write long histories to job.output"
            )
        for values in self._all_values():
            for name in values.keys() & encoded_values.keys():
                values[name] = _update_in_place(values[name], _decode(encoded_values[name]))

    def _all_values(self) -> Iterator[dict[str, Any]]:
        for memory in self._memories:
            yield vars(memory)["_values"]


def value_checksums(own: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return (name, checksum) of each value in `job.memory`.

    Two checksums are equal if the values are equal in Python.
    """
    return tuple(
        (f"job.memory.{name}", f"{zlib.crc32(_canonical_text(value).encode()):08x}")
        for name, value in sorted(own.get("memory", {}).items())
    )


def _encode(name: str, value: Any, depth: int = 0) -> Any:
    """Encode a value and its type for JSON.

    Raises ValueError with the attribute's name for a value that cannot be encoded.
    """
    if isinstance(value, np.generic):
        value = value.item()
    for plain_type in (bool, int, float, str):
        if isinstance(value, plain_type):
            return value if type(value) is plain_type else plain_type(value)
    if value is None:
        return None
    if isinstance(value, np.ndarray | mx.nd.NDArray):
        if value.size > MAX_ARRAY_VALUES or np.dtype(value.dtype).kind not in "biuf":
            raise ValueError(
                f"job.memory.{name}: an array may have {MAX_ARRAY_VALUES} numbers, this is {value.shape} of "
                f"{value.dtype}"
            )
        array_kinds = {"np": mx.np.ndarray, "nd": mx.nd.NDArray}  # both of MXNet's kinds of array
        return {
            **plain_array(value),
            **next(({kind: True} for kind, array_type in array_kinds.items() if isinstance(value, array_type)), {}),
        }
    if depth < MAX_DEPTH:
        if type(value) in (list, tuple):
            return {type(value).__name__: [_encode(name, item, depth + 1) for item in value]}
        if type(value) is dict and all(type(key) in (str, int) for key in value):
            return {"dict": [[key, _encode(name, item, depth + 1)] for key, item in value.items()]}
    raise ValueError(
        f"job.memory.{name}: {type(value).__name__} is no number, text, small array, list or dictionary of these"
    )


def _decode(encoded: Any) -> Any:
    """Decode a value that `_encode` encoded."""
    if not isinstance(encoded, dict):
        return encoded
    if "array" in encoded:
        decoded_array = array_of(encoded)
        array_module = mx.np if "np" in encoded else mx.nd if "nd" in encoded else None
        return decoded_array if array_module is None else array_module.array(decoded_array, dtype=decoded_array.dtype)
    if "dict" in encoded:
        return {key: _decode(encoded_item) for key, encoded_item in encoded["dict"]}
    return (
        [_decode(encoded_item) for encoded_item in encoded["list"]]
        if "list" in encoded
        else tuple(map(_decode, encoded["tuple"]))
    )


def _copy_value(name: str, value: Any) -> Any:
    return _decode(_encode(name, value))


def _canonical_text(encoded: Any) -> str:
    """Return a string that is the same for equal values, such as 0, 0.0 and False, or dictionaries in another order."""
    if isinstance(encoded, dict):
        if "dict" in encoded:
            return f"{{{','.join(sorted(f'{key!r}:{_canonical_text(item)}' for key, item in encoded['dict']))}}}"
        return f"{{{','.join(f'{type_name}:{_canonical_text(item)}' for type_name, item in sorted(encoded.items()))}}}"
    if isinstance(encoded, list):
        return f"[{','.join(map(_canonical_text, encoded))}]"
    return repr(encoded + 0.0) if isinstance(encoded, int | float) and abs(encoded) < 2**53 else repr(encoded)


def _update_in_place(present: Any, value: Any) -> Any:
    if type(present) is type(value):
        if isinstance(present, list):
            present[:] = value
            return present
        if isinstance(present, dict):
            present.clear()
            present.update(value)
            return present
        if isinstance(present, np.ndarray | mx.nd.NDArray) and (present.shape, present.dtype) == (
            value.shape,
            value.dtype,
        ):
            present[:] = value
            return present
    return value


def _unknown_name_text(name: str) -> str:
    return f"job.memory has no {name!r}: give it a first value, job.memory({name}=...), before job.epochs()"
