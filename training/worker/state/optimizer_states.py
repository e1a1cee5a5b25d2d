"""Manages the arrays that optimizers keep for each parameter (optimizer states).

MXNet creates optimizer states at the first update. This module creates all optimizer states before the first step, so
that a joining worker can receive their values.

Some optimizer states are created from the weights, such as the float32 copies of float16 weights. A script or another
trainer may write to the weights before the first update, so optimizer states are created again at the first update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip

from dyntrain.training.worker.state.slots import leaves, overwrite


class OptimizerStates:
    """The optimizer states of all parameters that train at present."""

    def __init__(self, trainers: Sequence[Any]) -> None:
        self._trainers = trainers
        self._unused: dict[tuple[int, int], list[Any]] = {}  # states not used since created, for each context
        for trainer_number, trainer in enumerate(trainers):
            for param_number, param in enumerate(trainer._params):
                if param.grad_req != "null":
                    self._create(trainer_number, param_number)

    def _create(self, trainer_number: int, param_number: int) -> None:
        trainer = self._trainers[trainer_number]
        for updater, weight in zip(trainer._updaters, trainer._params[param_number].list_data(), strict=True):
            if param_number not in updater.states:
                updater.states[param_number] = updater.optimizer.create_state_multi_precision(param_number, weight)
                updater.states_synced[param_number] = True
                self._unused.setdefault((trainer_number, param_number), []).append(updater.states[param_number])
            elif not updater.states_synced[
                param_number
            ]:  # load_states leaves the arrays on the contexts where they were saved
                updater.states[param_number] = updater.sync_state_context(updater.states[param_number], weight.context)
                updater.states_synced[param_number] = True

    @property
    def untouched_state_numbers(self) -> list[list[int]]:
        """The (trainer, parameter) numbers of the optimizer states that were not updated or loaded since creation."""
        return [
            [trainer_number, param_number]
            for (trainer_number, param_number), unused_states in self._unused.items()
            if self._is_unchanged(trainer_number, param_number, unused_states)
        ]

    def _is_unchanged(self, trainer_number: int, param_number: int, unused_states: list[Any]) -> bool:
        updaters = self._trainers[trainer_number]._updaters
        return all(
            param_number in updater.states and updater.states[param_number] is state
            for updater, state in zip(updaters, unused_states, strict=True)
        )

    def recreate_unused(self, trainer: Any) -> None:
        """Before the first update of a parameter, create its optimizer states again from the present weights."""
        trainer_number = self._trainers.index(trainer)
        for param_number in [
            param_number for owner_number, param_number in self._unused if owner_number == trainer_number
        ]:
            weights = trainer._params[param_number].list_data()
            if not any(weight._fresh_grad for weight in weights):
                continue
            if self._is_unchanged(trainer_number, param_number, self._unused.pop((trainer_number, param_number))):
                for updater, weight in zip(trainer._updaters, weights, strict=True):
                    new_states = updater.optimizer.create_state_multi_precision(param_number, weight)
                    for array, new_array in zip(leaves(updater.states[param_number]), leaves(new_states), strict=True):
                        overwrite(array, new_array)

    def allocate_packed(self, names: set[str], untouched: Sequence[Sequence[int]]) -> None:
        """Allocate exactly the optimizer states that a packed state contains.

        `names` are the names of the packed state's arrays.
        """
        packed_state_numbers = {tuple(map(int, name[1:].split(".")[:2])) for name in names if name.startswith("o")}
        for trainer_number, trainer in enumerate(self._trainers):
            for param_number in range(len(trainer._params)):
                if (trainer_number, param_number) in packed_state_numbers:
                    self._create(trainer_number, param_number)
                elif param_number in trainer._updaters[0].states and list(
                    leaves(trainer._updaters[0].states[param_number])
                ):
                    for updater in trainer._updaters:
                        del updater.states[param_number]
        self._unused = {
            (trainer_number, param_number): [
                updater.states[param_number] for updater in self._trainers[trainer_number]._updaters
            ]
            for trainer_number, param_number in untouched
            if param_number in self._trainers[trainer_number]._updaters[0].states
        }

    def scale_momentum(self, ratio: float, *trainers: Any) -> None:
        """Multiply the momentum of SGD and NAG by `ratio`, in the given trainers, or without arguments in all trainers.

        The momentum buffers of SGD and NAG contain gradients multiplied by the learning rate. MXNet's other optimizers
        apply the rate outside of their buffers.
        """
        if ratio == 1.0:
            return
        for trainer in trainers or self._trainers:
            if not isinstance(trainer._optimizer, mx.optimizer.SGD | mx.optimizer.NAG):
                continue
            if not trainer._optimizer.momentum:
                continue
            for updater in trainer._updaters:
                for optimizer_state in updater.states.values():
                    # With multi_precision SGD and NAG keep (buffer, weights), other optimizers (weights, buffer).
                    momentum = optimizer_state[0] if isinstance(optimizer_state, list | tuple) else optimizer_state
                    momentum *= ratio
