"""Keeps gradients that a script accumulates (`grad_req='add'`) over batches of different epochs or segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.worker.state.slots import Slot, slot, zeros_like


class CarriedGradients:
    """The gradients of `parameters` that are carried over the end of an epoch or segment.

    Each carried gradient is the sum over all workers.
    """

    def __init__(self, parameters: Sequence[Any]) -> None:
        self._parameters = parameters
        self._arrays: dict[int, list[Any]] = {}  # by id of the parameter

    @property
    def accumulated(self) -> list[Any]:
        """The parameters whose gradients accumulate over batches at present."""
        return [param for param in self._parameters if param.grad_req == "add"]

    def carry(self) -> None:
        """Copy the accumulated gradients, which are already summed over all workers, into the state."""
        for param in self.accumulated:
            self._arrays[id(param)] = [gradient.copy() for gradient in param.list_grad()]

    def resume(self, takes: bool) -> None:
        """Set the accumulated gradients after the end of an epoch or segment.

        If `takes` is true, the gradients on the first context become the carried sums, and all other accumulated
        gradients become zero. If `takes` is false, all accumulated gradients become zero.
        """
        for param in self.accumulated:
            carried_sums = self._arrays.get(id(param))
            for context_number, gradient in enumerate(param.list_grad()):
                if takes and carried_sums is not None and context_number == 0:
                    carried_sums[context_number].copyto(gradient)
                else:
                    gradient[:] = 0

    def drop_zeroed(self) -> bool:
        """Drop each carried gradient that the script has set to zero since the call of `resume`.

        Returns whether nonzero gradients were carried before the call, and no gradients are carried after the call.
        """
        held_params = {id(param): param for param in self.accumulated if id(param) in self._arrays}
        had_nonzero_sums = any(_has_nonzero(self._arrays[param_id][0]) for param_id in held_params)
        for param_id, param in held_params.items():
            if not any(map(_has_nonzero, param.list_grad())):
                del self._arrays[param_id]
        return had_nonzero_sums and not any(param_id in self._arrays for param_id in held_params)

    def drop_all(self) -> None:
        self._arrays.clear()

    def slots(self) -> list[Slot]:
        return [
            slot(f"g{param_number}", f"gradient of {param.name}", self._arrays[id(param)])
            for param_number, param in enumerate(self._parameters)
            if id(param) in self._arrays
        ]

    def allocate_packed(self, names: set[str]) -> None:
        """Allocate the carried gradients that a packed state contains. `names` are the packed state's array names."""
        self._arrays = {
            id(param): [zeros_like(data) for data in param.list_data()]
            for i, param in enumerate(self._parameters)
            if f"g{i}" in names
        }


def _has_nonzero(array: Any) -> bool:
    return bool(array.asnumpy().any())
