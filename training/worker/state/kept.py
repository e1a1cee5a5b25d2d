"""Keeps a script's own arrays as a part of the training state, such as a running average of all weights.

The arrays are looked up at each read or write, as a script may put another array into the dictionary that it passed to
`job.keep`. If the script assigns a new dictionary to its variable, the job does not keep the new dictionary.

An average of a net with BatchNorm contains averages of running statistics, recognised by their names. Like the running
statistics of the net, the averages of running statistics differ between workers until the end of an epoch or segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip

from dyntrain.training.worker.state.slots import is_statistic, overwrite

ACCEPTED_HOLDERS = "a dictionary or list of MXNet's arrays, or a Block or ParameterDict that no trainer has"


class NamedArray(NamedTuple):
    label: str  # name for messages
    copies: list[Any]  # the same value on each context
    running_name: str  # the name of a running statistic of BatchNorm, or of an average of one; otherwise ''


class KeptArrays:
    """The arrays that the script passed to `job.keep`.

    Raises ValueError for arguments that cannot be kept, and later if the shapes of the arrays have changed.
    """

    def __init__(self, *holders: Any) -> None:
        for holder in holders:
            if isinstance(holder, mx.nd.NDArray):
                raise ValueError(
                    "job.keep() got a single array, which an assignment to the variable would replace unnoticed: "
                    f"pass {ACCEPTED_HOLDERS}"
                )
        self._holders = holders
        self._first_shapes = [(array.label, _shapes_text(array.copies)) for array in self._all_named_arrays()]
        if len(self._first_shapes) < len(holders):
            raise ValueError(
                f"an argument of job.keep() contains no arrays: pass {ACCEPTED_HOLDERS}, filled before the call"
            )

    def arrays(self) -> list[NamedArray]:
        named_arrays = self._all_named_arrays()
        if (
            shapes := [(named_array.label, _shapes_text(named_array.copies)) for named_array in named_arrays]
        ) != self._first_shapes:
            changes = sorted(
                f"{label}: {present_shapes}"
                for label, present_shapes in shapes
                if (label, present_shapes) not in self._first_shapes
            )
            raise ValueError(
                f"the arguments of job.keep() have other arrays than at first ({'; '.join(changes) or 'fewer'}): their "
                "number, shapes and types must stay the same, on all workers"
            )
        return named_arrays

    def _all_named_arrays(self) -> list[NamedArray]:
        return [
            named_array
            for holder_index, holder in enumerate(self._holders)
            for named_array in _named_arrays_in(holder, f"job.keep {holder_index}")
        ]

    def copies(self) -> list[list[Any]]:
        """Return copies of all kept arrays, from which `put_back` can restore the arrays."""
        return [[context_copy.copy() for context_copy in named_array.copies] for named_array in self.arrays()]

    def put_back(self, saved: Sequence[Sequence[Any]]) -> None:
        for named_array, saved_copies in zip(self.arrays(), saved, strict=True):
            for context_copy, saved_copy in zip(named_array.copies, saved_copies, strict=True):
                overwrite(context_copy, saved_copy)

    @property
    def parameters(self) -> list[Any]:
        return [param for holder in self._holders for param in _parameters(holder)]


def _named_arrays_in(holder: Any, label: str, name: str = "") -> Iterator[NamedArray]:
    """Yield the arrays in `holder`, an argument of `job.keep` or a nested value.

    If `holder` is a value of a dictionary, `name` is its key, otherwise ''.
    """
    if isinstance(holder, mx.nd.NDArray):
        yield NamedArray(label, [holder], name if is_statistic(name) else "")
    elif type(holder) in (list, tuple):
        for index, item in enumerate(holder):
            yield from _named_arrays_in(item, f"{label}[{index}]")
    elif isinstance(holder, dict):
        for key, item in holder.items():
            yield from _named_arrays_in(item, f"{label}[{key}]", str(key))
    elif parameters := _parameters(holder):
        for index, param in enumerate(parameters):
            running_name = param.name if is_statistic(param.name) else ""
            yield NamedArray(f"{label} parameter {index}", param.list_data(), running_name)
    else:
        raise ValueError(f"{label} is {type(holder).__name__}: job.keep() takes {ACCEPTED_HOLDERS}")


def _parameters(holder: Any) -> list[Any]:
    if isinstance(holder, mx.gluon.Block):
        holder = holder.collect_params()
    return list(holder.values()) if isinstance(holder, mx.gluon.ParameterDict) else []


def _shapes_text(copies: list[Any]) -> str:
    return f"{len(copies)} x {tuple(copies[0].shape)} {np.dtype(copies[0].dtype).name}"
