"""Whose an array is: a trainer's weight, its gradient, or a state of its optimizer. Looked up once for a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dyntrain.training.worker.state.slots import leaves


class Owners:
    """Of the arrays that these trainers have now, by ids."""

    def __init__(self, trainers: Sequence[Any]) -> None:
        self._weights: dict[int, tuple[Any, int]] = {}  # parameters, and numbers of devices
        self._gradients: dict[int, list[Any]] = {}  # trainers
        self._states = set[int]()
        for trainer in trainers:
            for param in trainer._params:
                self._weights |= {id(weight): (param, i) for i, weight in enumerate(param._data or ())}
                for gradient in param._grad or ():
                    self._gradients.setdefault(id(gradient), []).append(trainer)
            states = (state for updater in trainer._updaters for state in updater.states.values())
            self._states |= {id(leaf) for state in states for leaf in leaves(state)}

    def of_gradient(self, array: Any) -> list[Any]:
        """The trainers whose gradient it is."""
        return self._gradients.get(id(array), [])

    def gradient_of(self, weight: Any) -> Any:
        """None: it is no weight, or has none."""
        param, device = self._weights.get(id(weight), (None, 0))
        return param._grad[device] if param is not None and param._grad else None

    def is_undoable(self, array: Any) -> bool:
        """Whether it is a weight, or a state of an optimizer."""
        return id(array) in self._weights or id(array) in self._states
