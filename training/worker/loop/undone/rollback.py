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
    """Copy of all state that may change between two steps, except the weights. Every step makes one.

    A snapshot has the plain numbers that a script sets: a rate, a parameter's `lr_mult` and `grad_req`, a loss scale. A
    snapshot has the scheduler and its counts, the job's own state, and the arrays that the script keeps. A snapshot
    also has the arrays that a forward pass changes: running statistics, and parameters.
    """

    def __init__(self, state: TrainingState) -> None:
        self._own = dict(state.own)
        self._values = [(owner, _plain_values(owner)) for trainer in state.trainers for owner in _owners(trainer)]
        self._factors = [(p, p.lr_mult, p.wd_mult, p.grad_req) for trainer in state.trainers for p in trainer._params]
        schedulers = [(trainer._optimizer, trainer._optimizer.lr_scheduler) for trainer in state.trainers]
        self._schedules = [
            (optimizer, scheduler, {} if scheduler is None else capture(scheduler))
            for optimizer, scheduler in schedulers
        ]
        updaters = [updater for trainer in state.trainers for updater in trainer._updaters]
        self._states = [(updater, dict(updater.states)) for updater in updaters]  # a script may replace states
        self._running = [(array, array.copy()) for array in state.running_arrays()]
        self._kept = state.kept.copies()
        self._written = [(p, array, array.copy()) for p in state.written for array in p.list_data()]

    def restore_state(self, state: TrainingState) -> None:
        state.own = dict(self._own)
        for owner, values in self._values:
            vars(owner).update({name: copied(value) for name, value in values.items()})
        for param, rate, decay, request in self._factors:
            param.lr_mult, param.wd_mult = rate, decay
            if param.grad_req != request:  # setting grad_req makes MXNet allocate other arrays
                param.grad_req = request
        for updater, states in self._states:
            updater.states = dict(states)
        for optimizer, scheduler, captured in self._schedules:
            optimizer.lr_scheduler = scheduler
            restore(scheduler, captured)
        for array, copy in self._running:
            overwrite(array, copy)
        self.put_back(state)

    def put_back(self, state: TrainingState) -> None:
        """Restore the arrays that are equal on all workers, except the weights that updates change."""
        state.kept.put_back(self._kept)
        self.put_back_written()

    def put_back_written(self, excluded: Collection[Any] = ()) -> None:
        for param, array, copy in self._written:
            if param not in excluded:
                overwrite(array, copy)


def _owners(trainer: Any) -> list[Any]:
    scaler = getattr(trainer, "_amp_loss_scaler", None)
    return [trainer._optimizer, trainer, *([scaler] if scaler is not None else [])]


def _plain_values(owner: Any) -> dict[str, Any]:
    if hasattr(owner, "_amp_original_scale") or hasattr(owner, "_params"):
        # other attributes of a trainer do not change after it is made
        return {name: vars(owner)[name] for name in ("_scale", "worker_rate") if name in vars(owner)}
    return {name: copied(value) for name, value in vars(owner).items() if _is_plain(name, value)}


def _is_plain(name: str, value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(each, _PLAIN_TYPES) for each in value)
    return isinstance(value, _PLAIN_TYPES) or (name in _MULTIPLIERS and isinstance(value, dict))


@dataclass(frozen=True)
class Overwritten:
    """An array, and its copy from before the script itself wrote to it, as when a script clips weights."""

    array: Any
    copy: Any

    def restore_state(self, state: TrainingState) -> None:
        overwrite(self.array, self.copy)


@dataclass(frozen=True)
class Backup:
    """Copy of a trainer before its update, for steps in which another trainer's update may become void."""

    trainer: Any
    arrays: list[tuple[Any, Any]]  # (in use, copy)
    states: frozenset[int]
    counts: list[Any]
    values: dict[str, Any]

    @classmethod
    def of(cls, trainer: Any) -> Backup:
        arrays = [data for p in trainer._params if differentiable(p) for data in p.list_data()]
        arrays += [leaf for updater in trainer._updaters for each in updater.states.values() for leaf in leaves(each)]
        return cls(
            trainer,
            [(array, array.copy()) for array in arrays],
            frozenset(trainer._updaters[0].states),
            counts_of(trainer._optimizer),
            values_of(trainer),
        )

    def restore_state(self, state: TrainingState) -> None:
        for array, copy in self.arrays:
            overwrite(array, copy)
        for updater in self.trainer._updaters:
            for new_state in set(updater.states) - self.states:
                del updater.states[new_state]
        set_counts(self.trainer._optimizer, self.counts)
        set_values(self.trainer, self.values)
