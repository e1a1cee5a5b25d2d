"""Find the trainer to which an array belongs, as weight, gradient or optimizer state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyntrain.training.worker.state.slots import leaves


class ArrayOwners:
    """Table of the trainers to which arrays belong, by the ids of the arrays at the time when the table is made."""

    def __init__(self, trainers: Sequence[Any]) -> None:
        self._weights: dict[int, tuple[Any, int]] = {}  # parameter, and number of the device
        self._gradients: dict[int, list[Any]] = {}  # trainers that have the gradient
        self._states = set[int]()
        for trainer in trainers:
            for param in trainer._params:
                self._weights |= {id(weight): (param, device) for device, weight in enumerate(param._data or ())}
                for gradient in param._grad or ():
                    self._gradients.setdefault(id(gradient), []).append(trainer)
            optimizer_states = (
                optimizer_state for updater in trainer._updaters for optimizer_state in updater.states.values()
            )
            self._states |= {id(leaf) for optimizer_state in optimizer_states for leaf in leaves(optimizer_state)}

    def trainers_of_gradient(self, array: Any) -> list[Any]:
        """Return the trainers that have the array as a gradient."""
        return self._gradients.get(id(array), [])

    def gradient_of(self, weight: Any) -> Any:
        """Return the gradient of a weight, or None if the array is not a weight or has no gradient."""
        param, device = self._weights.get(id(weight), (None, 0))
        return param._grad[device] if param is not None and param._grad else None

    def is_undoable(self, array: Any) -> bool:
        """Whether the array is a weight or an optimizer state."""
        return id(array) in self._weights or id(array) in self._states
