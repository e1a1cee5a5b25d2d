"""Copies of the state that a void step must restore."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy as copied
from dataclasses import dataclass
from typing import Any

import numpy as np
from dyntrain.training.worker.state.attributes import capture, restore
from dyntrain.training.worker.state.scalars import counts_of, set_counts, set_values, values_of
from dyntrain.training.worker.state.slots import leaves, overwrite
from dyntrain.training.worker.state.training_state import TrainingState, differentiable

_PLAIN_TYPES = (bool, int, float, str, np.generic, type(None))
_MULTIPLIERS = ("lr_mult", "wd_mult")  # dictionaries of an optimizer, attributes of a parameter


class StepSnapshot:
    """Copy of all training state that may change between two steps, except the weights.

    Each step makes a new snapshot.

    A snapshot contains the plain values that a script sets, such as a learning rate, a parameter's `lr_mult` and
    `grad_req`, or a loss scale. A snapshot also contains the scheduler and its counts, the job's own state, the arrays
    that the script keeps, and the arrays that a forward pass changes (running statistics and parameters).
    """

    def __init__(self, state: TrainingState) -> None:
        self._own = dict(state.own)
        self._values = [
            (owner, _plain_values(owner)) for trainer in state.trainers for owner in _attribute_owners(trainer)
        ]
        self._factors = [
            (param, param.lr_mult, param.wd_mult, param.grad_req)
            for trainer in state.trainers
            for param in trainer._params
        ]
        schedulers = [(trainer._optimizer, trainer._optimizer.lr_scheduler) for trainer in state.trainers]
        self._schedules = [
            (optimizer, scheduler, {} if scheduler is None else capture(scheduler))
            for optimizer, scheduler in schedulers
        ]
        all_updaters = [updater for trainer in state.trainers for updater in trainer._updaters]
        self._states = [(updater, dict(updater.states)) for updater in all_updaters]  # a script may replace states
        self._running = [(array, array.copy()) for array in state.statistic_arrays()]
        self._kept = state.kept.copies()
        self._written = [(param, array, array.copy()) for param in state.written for array in param.list_data()]

    def restore_state(self, state: TrainingState) -> None:
        state.own = dict(self._own)
        for owner, values in self._values:
            vars(owner).update({name: copied(value) for name, value in values.items()})
        for param, rate, decay, grad_request in self._factors:
            param.lr_mult, param.wd_mult = rate, decay
            if param.grad_req != grad_request:  # setting grad_req makes MXNet allocate other arrays
                param.grad_req = grad_request
        for updater, optimizer_states in self._states:
            updater.states = dict(optimizer_states)
        for optimizer, scheduler, captured_state in self._schedules:
            optimizer.lr_scheduler = scheduler
            restore(scheduler, captured_state)
        for array, array_copy in self._running:
            overwrite(array, array_copy)
        self.put_back(state)

    def put_back(self, state: TrainingState) -> None:
        """Restore the arrays that the script keeps, and the parameters that forward passes change."""
        state.kept.put_back(self._kept)
        self.put_back_parameters()

    def put_back_parameters(self, excluded: Collection[Any] = ()) -> None:
        for param, array, array_copy in self._written:
            if param not in excluded:
                overwrite(array, array_copy)


def _attribute_owners(trainer: Any) -> list[Any]:
    loss_scaler = getattr(trainer, "_amp_loss_scaler", None)
    return [trainer._optimizer, trainer, *([loss_scaler] if loss_scaler is not None else [])]


def _plain_values(owner: Any) -> dict[str, Any]:
    if hasattr(owner, "_amp_original_scale") or hasattr(owner, "_params"):
        # other attributes of a trainer do not change after it is made
        return {name: vars(owner)[name] for name in ("_scale", "worker_rate") if name in vars(owner)}
    return {name: copied(value) for name, value in vars(owner).items() if _is_plain(name, value)}


def _is_plain(name: str, value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(item, _PLAIN_TYPES) for item in value)
    return isinstance(value, _PLAIN_TYPES) or (name in _MULTIPLIERS and isinstance(value, dict))


@dataclass(frozen=True)
class OverwrittenArray:
    """An array, and its copy from before the script itself wrote to the array, for example to clip weights."""

    array: Any  # that the script wrote to
    copy: Any  # from before the write

    def restore_state(self, state: TrainingState) -> None:
        overwrite(self.array, self.copy)


@dataclass(frozen=True)
class TrainerBackup:
    """Copy of a trainer's weights and optimizer state before its update, in case the step becomes void later."""

    trainer: Any
    arrays: list[tuple[Any, Any]]  # (array in use, its copy)
    states: frozenset[int]  # parameters that have an optimizer state
    counts: list[Any]  # the optimizer's counts of updates
    values: dict[str, Any]  # the trainer's plain numbers

    @classmethod
    def of(cls, trainer: Any) -> TrainerBackup:
        arrays = [array for param in trainer._params if differentiable(param) for array in param.list_data()]
        arrays += [
            leaf
            for updater in trainer._updaters
            for optimizer_state in updater.states.values()
            for leaf in leaves(optimizer_state)
        ]
        return cls(
            trainer,
            [(array, array.copy()) for array in arrays],
            frozenset(trainer._updaters[0].states),
            counts_of(trainer._optimizer),
            values_of(trainer),
        )

    def restore_state(self, state: TrainingState) -> None:
        for array, array_copy in self.arrays:
            overwrite(array, array_copy)
        for updater in self.trainer._updaters:
            for new_key in set(updater.states) - self.states:
                del updater.states[new_key]
        set_counts(self.trainer._optimizer, self.counts)
        set_values(self.trainer, self.values)
