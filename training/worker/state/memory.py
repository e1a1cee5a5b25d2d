"""Values that a script needs to continue at the job's position: equal on all workers, and part of the state.

The values are numbers, strings and small arrays, which a script reads and sets as attributes. `keep` writes the values
into the state while no exchange is in flight. `recall` reads them back at each boundary and after a void step, so all
workers, joiners included, hold values of the same kinds.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.worker.state.attributes import LARGEST, array_of, plain_array

MOST = 200_000  # characters of JSON, which is in the header of every state
DEPTH = 20  # most levels of nested values


class Memory:
    """The attributes of one `job.memory`: set each to the same value on every worker. None can be added later."""

    def __init__(self, **values: Any) -> None:
        vars(self)["_values"] = {}
        for name, value in values.items():
            if name.startswith("_"):
                raise ValueError(
                    f"job.memory({name}=...): a name that begins with an underscore cannot be an attribute"
                )
            self._values[name] = _copy(name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in vars(self).get("_values", {}):
            raise AttributeError(_unknown_name(name))
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._values:
            raise AttributeError(_unknown_name(name))
        self._values[name] = _copy(name, value)

    def __dir__(self) -> list[str]:
        return sorted(self._values)

    def __repr__(self) -> str:
        return f"Memory({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"


class Memories:
    """All memories of a job. `own` is the state's dictionary of the job's own values."""

    def __init__(self) -> None:
        self._memories: list[Memory] = []

    def add(self, memory: Memory) -> None:
        """Add a memory. Raises ValueError for a name in use, as all share one namespace in the state."""
        twice = {name for each in self._memories for name in dir(each)} & set(dir(memory))
        if twice:
            raise ValueError(f"job.memory({min(twice)}=...) a second time: give each name only once")
        self._memories.append(memory)

    def keep(self, own: dict[str, Any]) -> None:
        """Write the values into the state. Raises ValueError for one that cannot be encoded, as in a changed list."""
        if self._memories:
            own["memory"] = {
                name: _encode(name, value) for values in self._all_values() for name, value in values.items()
            }

    def recall(self, own: Mapping[str, Any]) -> None:
        """Read the values back from the state. Raises ValueError if all values together are too large.

        A list, a dictionary or an array to which a script has a reference stays the same object.
        """
        encoded = own.get("memory", {})
        if len(text := json.dumps(encoded)) > MOST:
            raise ValueError(
                f"job.memory holds {len(text)} characters as JSON, and must stay below {MOST}: it travels with every "
                "state; write long histories to job.output"
            )
        for values in self._all_values():
            for name in values.keys() & encoded.keys():
                values[name] = _in_place(values[name], _decode(encoded[name]))

    def _all_values(self) -> Iterator[dict[str, Any]]:
        for memory in self._memories:
            yield vars(memory)["_values"]


def checks(own: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return (name, checksum) of each value: checksums are equal if the values are equal in Python."""
    return tuple(
        (f"job.memory.{name}", f"{zlib.crc32(_canonical(value).encode()):08x}")
        for name, value in sorted(own.get("memory", {}).items())
    )


def _encode(name: str, value: Any, depth: int = 0) -> Any:
    """Encode a value for JSON, with its kind. Raises ValueError with the attribute's name if that is impossible."""
    if isinstance(value, np.generic):
        value = value.item()
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return value if type(value) is kind else kind(value)
    if value is None:
        return None
    if isinstance(value, np.ndarray | mx.nd.NDArray):
        if value.size > LARGEST or np.dtype(value.dtype).kind not in "biuf":
            raise ValueError(
                f"job.memory.{name}: an array may have {LARGEST} numbers, this is {value.shape} of {value.dtype}"
            )
        kinds = {"np": mx.np.ndarray, "nd": mx.nd.NDArray}  # both of MXNet's kinds of array
        return {
            **plain_array(value),
            **next(({name: True} for name, array_type in kinds.items() if isinstance(value, array_type)), {}),
        }
    if depth < DEPTH:
        if type(value) in (list, tuple):
            return {type(value).__name__: [_encode(name, part, depth + 1) for part in value]}
        if type(value) is dict and all(type(key) in (str, int) for key in value):
            return {"dict": [[key, _encode(name, part, depth + 1)] for key, part in value.items()]}
    raise ValueError(
        f"job.memory.{name}: {type(value).__name__} is no number, text, small array, list or dictionary of these"
    )


def _decode(encoded: Any) -> Any:
    """Decode a result of `_encode`."""
    if not isinstance(encoded, dict):
        return encoded
    if "array" in encoded:
        array = array_of(encoded)
        module = mx.np if "np" in encoded else mx.nd if "nd" in encoded else None
        return array if module is None else module.array(array, dtype=array.dtype)
    if "dict" in encoded:
        return {key: _decode(part) for key, part in encoded["dict"]}
    return [_decode(part) for part in encoded["list"]] if "list" in encoded else tuple(map(_decode, encoded["tuple"]))


def _copy(name: str, value: Any) -> Any:
    return _decode(_encode(name, value))


def _canonical(encoded: Any) -> str:
    """Return a string that is the same for equal values, as 0, 0.0 and False, or dictionaries in any order."""
    if isinstance(encoded, dict):
        if "dict" in encoded:
            return f"{{{','.join(sorted(f'{key!r}:{_canonical(part)}' for key, part in encoded['dict']))}}}"
        return f"{{{','.join(f'{kind}:{_canonical(part)}' for kind, part in sorted(encoded.items()))}}}"
    if isinstance(encoded, list):
        return f"[{','.join(map(_canonical, encoded))}]"
    return repr(encoded + 0.0) if isinstance(encoded, int | float) and abs(encoded) < 2**53 else repr(encoded)


def _in_place(present: Any, value: Any) -> Any:
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


def _unknown_name(name: str) -> str:
    return f"job.memory has no {name!r}: give it a first value, job.memory({name}=...), before job.epochs()"
