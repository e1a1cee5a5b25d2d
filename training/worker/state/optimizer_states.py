"""The arrays that optimizers keep for each parameter. MXNet makes them at its first update; here they are there from
the beginning, so that a joiner has somewhere to receive them.

Some are made of the weights, as the float32 copies of float16 weights. What a script or another trainer writes to the
weights before that update would not be in them, so they are made once more then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip

from dyntrain.training.worker.state.slots import leaves, overwrite


class OptimizerStates:
    """Of all parameters that train now."""

    def __init__(self, trainers: Sequence[Any]) -> None:
        self._trainers = trainers
        self._fresh: dict[tuple[int, int], list[Any]] = {}  # here, and not updated since: one for each context
        for t, trainer in enumerate(trainers):
            for i, param in enumerate(trainer._params):
                if param.grad_req != "null":
                    self._make(t, i)

    def _make(self, t: int, i: int) -> None:
        trainer = self._trainers[t]
        for updater, data in zip(trainer._updaters, trainer._params[i].list_data(), strict=True):
            if i not in updater.states:
                updater.states[i] = updater.optimizer.create_state_multi_precision(i, data)
                updater.states_synced[i] = True
                self._fresh.setdefault((t, i), []).append(updater.states[i])
            elif not updater.states_synced[i]:  # load_states leaves the arrays where they were saved
                updater.states[i] = updater.sync_state_context(updater.states[i], data.context)
                updater.states_synced[i] = True

    @property
    def untouched(self) -> list[list[int]]:
        """(trainer, parameter) of those that are as they were made: nothing was updated by them or loaded into them."""
        return [[t, i] for (t, i), fresh in self._fresh.items() if self._still(t, i, fresh)]

    def _still(self, t: int, i: int, fresh: list[Any]) -> bool:
        updaters = self._trainers[t]._updaters
        return all(i in one.states and one.states[i] is each for one, each in zip(updaters, fresh, strict=True))

    def begin(self, trainer: Any) -> None:
        """Note for which parameters the update that is due is the first."""
        t = self._trainers.index(trainer)
        for i in [i for number, i in self._fresh if number == t]:
            datas = trainer._params[i].list_data()
            if not any(data._fresh_grad for data in datas):
                continue
            if self._still(t, i, self._fresh.pop((t, i))):
                for updater, data in zip(trainer._updaters, datas, strict=True):
                    anew = updater.optimizer.create_state_multi_precision(i, data)
                    for array, other in zip(leaves(updater.states[i]), leaves(anew), strict=True):
                        overwrite(array, other)

    def receive(self, names: set[str], untouched: Sequence[Sequence[int]]) -> None:
        """Makes room for exactly those that a packed state has, by the names of its arrays."""
        wanted = {tuple(map(int, name[1:].split(".")[:2])) for name in names if name.startswith("o")}
        for t, trainer in enumerate(self._trainers):
            for i in range(len(trainer._params)):
                if (t, i) in wanted:
                    self._make(t, i)
                elif i in trainer._updaters[0].states and list(leaves(trainer._updaters[0].states[i])):
                    for updater in trainer._updaters:
                        del updater.states[i]
        self._fresh = {
            (t, i): [updater.states[i] for updater in self._trainers[t]._updaters]
            for t, i in untouched
            if i in self._trainers[t]._updaters[0].states
        }

    def scale_momentum(self, ratio: float, *trainers: Any) -> None:
        """For SGD and NAG, which keep the rate inside their buffer; other optimizers of MXNet apply it outside and need
        nothing. Of all trainers, where none are given.
        """
        if ratio == 1.0:
            return
        for trainer in trainers or self._trainers:
            if not isinstance(trainer._optimizer, mx.optimizer.SGD | mx.optimizer.NAG):
                continue
            if not trainer._optimizer.momentum:
                continue
            for updater in trainer._updaters:
                for state in updater.states.values():
                    # With multi_precision these two keep (buffer, weights), other optimizers (weights, buffer).
                    momentum = state[0] if isinstance(state, list | tuple) else state
                    momentum *= ratio
