"""Accumulated gradients (`grad_req='add'`) that are carried over a boundary between two batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.worker.state.slots import Slot, slot, zeros_like


class Carried:
    """The carried gradients of `parameters`: each array is the sum over all workers."""

    def __init__(self, parameters: Sequence[Any]) -> None:
        self._parameters = parameters
        self._arrays: dict[int, list[Any]] = {}  # by id of the parameter

    @property
    def accumulated(self) -> list[Any]:
        """The parameters whose gradients accumulate at present."""
        return [p for p in self._parameters if p.grad_req == "add"]

    def carry(self) -> None:
        """Copy the accumulated gradients, already summed over all workers, into the state."""
        for param in self.accumulated:
            self._arrays[id(param)] = [gradient.copy() for gradient in param.list_grad()]

    def resume(self, takes: bool) -> None:
        """Set the gradients to the carried sums on the first context of the worker with `takes`, otherwise to zero."""
        for param in self.accumulated:
            carried = self._arrays.get(id(param))
            for i, gradient in enumerate(param.list_grad()):
                if takes and carried is not None and i == 0:
                    carried[i].copyto(gradient)
                else:
                    gradient[:] = 0

    def drop_zeroed(self) -> bool:
        """Stop carrying the gradients that the script has set to zero since all workers resumed.

        Returns whether nonzero gradients were carried before and none are now.
        """
        held = {id(p): p for p in self.accumulated if id(p) in self._arrays}
        had_nonzero = any(_has_nonzero(self._arrays[key][0]) for key in held)
        for key, param in held.items():
            if not any(map(_has_nonzero, param.list_grad())):
                del self._arrays[key]
        return had_nonzero and not any(key in self._arrays for key in held)

    def drop(self) -> None:
        self._arrays.clear()

    def slots(self) -> list[Slot]:
        return [
            slot(f"g{i}", f"gradient of {p.name}", self._arrays[id(p)])
            for i, p in enumerate(self._parameters)
            if id(p) in self._arrays
        ]

    def receive(self, names: set[str]) -> None:
        """Allocate exactly the carried gradients that a packed state has, by the names of its arrays."""
        self._arrays = {
            id(p): [zeros_like(data) for data in p.list_data()]
            for i, p in enumerate(self._parameters)
            if f"g{i}" in names
        }


def _has_nonzero(array: Any) -> bool:
    return bool(array.asnumpy().any())
