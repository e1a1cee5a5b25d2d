"""A script's own arrays that are part of the state, of any size: e.g. a running average of all weights.

The arrays are looked up at each read or write, as a script may put another array into its dictionary. If the
script assigns a new dictionary to the variable, the job does not keep the new one.

An average of a net with BatchNorm contains running statistics, recognised by their names. Like the net's, these are
each worker's own until a boundary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip

from dyntrain.training.worker.state.slots import is_running, overwrite

HOLDS = "a dictionary or list of MXNet's arrays, or a Block or ParameterDict that no trainer has"


class NamedArray(NamedTuple):
    label: str
    copies: list[Any]  # the same value on each context
    running: str  # the name of a running statistic of BatchNorm, or of an average of one; otherwise ''


class Kept:
    """The arrays passed to `job.keep`. Raises ValueError for unfit arguments, and later for changed shapes."""

    def __init__(self, *holders: Any) -> None:
        for each in holders:
            if isinstance(each, mx.nd.NDArray):
                raise ValueError(
                    "job.keep() of a single array, which an assignment to the variable would replace unnoticed: "
                    f"pass {HOLDS}"
                )
        self._holders = holders
        self._shapes = [(each.label, _shapes(each.copies)) for each in self._named()]
        if len(self._shapes) < len(holders):
            raise ValueError(f"job.keep() of an argument without arrays: pass {HOLDS}, filled before the call")

    def arrays(self) -> list[NamedArray]:
        named = self._named()
        if (shapes := [(each.label, _shapes(each.copies)) for each in named]) != self._shapes:
            changed = sorted(f"{label}: {now}" for label, now in shapes if (label, now) not in self._shapes)
            raise ValueError(
                f"the arguments of job.keep() have other arrays than at first ({'; '.join(changed) or 'fewer'}): their "
                "number, shapes and types must stay the same, on all workers"
            )
        return named

    def _named(self) -> list[NamedArray]:
        return [array for i, each in enumerate(self._holders) for array in _walk(each, f"job.keep {i}")]

    def copies(self) -> list[list[Any]]:
        """Return copies of all arrays, for `put_back`."""
        return [[array.copy() for array in each.copies] for each in self.arrays()]

    def put_back(self, saved: Sequence[Sequence[Any]]) -> None:
        for each, before in zip(self.arrays(), saved, strict=True):
            for array, copy in zip(each.copies, before, strict=True):
                overwrite(array, copy)

    @property
    def parameters(self) -> list[Any]:
        return [param for each in self._holders for param in _parameters(each)]


def _walk(holder: Any, label: str, name: str = "") -> Iterator[NamedArray]:
    """Yield the arrays in `holder`; `name` is its key in a dictionary."""
    if isinstance(holder, mx.nd.NDArray):
        yield NamedArray(label, [holder], name if is_running(name) else "")
    elif type(holder) in (list, tuple):
        for i, part in enumerate(holder):
            yield from _walk(part, f"{label}[{i}]")
    elif isinstance(holder, dict):
        for key, part in holder.items():
            yield from _walk(part, f"{label}[{key}]", str(key))
    elif parameters := _parameters(holder):
        for i, param in enumerate(parameters):
            running = param.name if is_running(param.name) else ""
            yield NamedArray(f"{label} parameter {i}", param.list_data(), running)
    else:
        raise ValueError(f"{label} is {type(holder).__name__}: job.keep() takes {HOLDS}")


def _parameters(holder: Any) -> list[Any]:
    if isinstance(holder, mx.gluon.Block):
        holder = holder.collect_params()
    return list(holder.values()) if isinstance(holder, mx.gluon.ParameterDict) else []


def _shapes(copies: list[Any]) -> str:
    return f"{len(copies)} x {tuple(copies[0].shape)} {np.dtype(copies[0].dtype).name}"
