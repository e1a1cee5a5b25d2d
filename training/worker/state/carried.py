"""Gradients that add up over batches (`grad_req='add'`), and what of them is carried over a boundary between two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.worker.state.slots import Slot, slot, zeros_like


class Carried:
    """Of `parameters`: each array is the sum over all workers."""

    def __init__(self, parameters: Sequence[Any]) -> None:
        self._parameters = parameters
        self._arrays: dict[int, list[Any]] = {}  # by id of the parameter

    @property
    def accumulated(self) -> list[Any]:
        """The parameters whose gradients add up, at present."""
        return [p for p in self._parameters if p.grad_req == "add"]

    def carry(self) -> None:
        """What has been accumulated, and is summed over all workers, becomes part of the state."""
        for param in self.accumulated:
            self._arrays[id(param)] = [gradient.copy() for gradient in param.list_grad()]

    def resume(self, takes: bool) -> None:
        """Accumulated gradients begin at what was carried, on the one worker that `takes` it; at zero elsewhere."""
        for param in self.accumulated:
            carried = self._arrays.get(id(param))
            for i, gradient in enumerate(param.list_grad()):
                if takes and carried is not None and i == 0:
                    carried[i].copyto(gradient)
                else:
                    gradient[:] = 0

    def drop_zeroed(self) -> bool:
        """What the script has set to zero since all workers resumed it is carried no more; whether that leaves nothing
        of what there was.
        """
        held = {id(p): p for p in self.accumulated if id(p) in self._arrays}
        anything = any(_any(self._arrays[key][0]) for key in held)
        for key, param in held.items():
            if not any(map(_any, param.list_grad())):
                del self._arrays[key]
        return anything and not any(key in self._arrays for key in held)

    def drop(self) -> None:
        self._arrays.clear()

    def slots(self) -> list[Slot]:
        return [
            slot(f"g{i}", f"gradient of {p.name}", self._arrays[id(p)])
            for i, p in enumerate(self._parameters)
            if id(p) in self._arrays
        ]

    def receive(self, names: set[str]) -> None:
        """Makes room for exactly those that a packed state has, by the names of its arrays."""
        self._arrays = {
            id(p): [zeros_like(data) for data in p.list_data()]
            for i, p in enumerate(self._parameters)
            if f"g{i}" in names
        }


def _any(array: Any) -> bool:
    return bool(array.asnumpy().any())
