"""The arrays that optimizers keep for each parameter.

MXNet creates these arrays at its first update. Here the arrays exist from the beginning, so that a joiner can receive
them.

Some are created from the weights, such as the float32 copies of float16 weights. A script or another trainer may write
to the weights before the first update, so these arrays are created again at that update.
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
        for t, trainer in enumerate(trainers):
            for i, param in enumerate(trainer._params):
                if param.grad_req != "null":
                    self._create(t, i)

    def _create(self, t: int, i: int) -> None:
        trainer = self._trainers[t]
        for updater, data in zip(trainer._updaters, trainer._params[i].list_data(), strict=True):
            if i not in updater.states:
                updater.states[i] = updater.optimizer.create_state_multi_precision(i, data)
                updater.states_synced[i] = True
                self._unused.setdefault((t, i), []).append(updater.states[i])
            elif not updater.states_synced[i]:  # load_states leaves the arrays on the contexts where they were saved
                updater.states[i] = updater.sync_state_context(updater.states[i], data.context)
                updater.states_synced[i] = True

    @property
    def untouched(self) -> list[list[int]]:
        """(trainer, parameter) of the states that no update has used and no loading has replaced since creation."""
        return [[t, i] for (t, i), unused in self._unused.items() if self._is_unchanged(t, i, unused)]

    def _is_unchanged(self, t: int, i: int, unused: list[Any]) -> bool:
        updaters = self._trainers[t]._updaters
        return all(
            i in updater.states and updater.states[i] is state for updater, state in zip(updaters, unused, strict=True)
        )

    def begin(self, trainer: Any) -> None:
        """Before an update, create the states again of the parameters that were never updated."""
        t = self._trainers.index(trainer)
        for i in [i for number, i in self._unused if number == t]:
            datas = trainer._params[i].list_data()
            if not any(data._fresh_grad for data in datas):
                continue
            if self._is_unchanged(t, i, self._unused.pop((t, i))):
                for updater, data in zip(trainer._updaters, datas, strict=True):
                    new_states = updater.optimizer.create_state_multi_precision(i, data)
                    for array, new_array in zip(leaves(updater.states[i]), leaves(new_states), strict=True):
                        overwrite(array, new_array)

    def receive(self, names: set[str], untouched: Sequence[Sequence[int]]) -> None:
        """Allocate exactly the states that a packed state has, by the names of its arrays."""
        packed_states = {tuple(map(int, name[1:].split(".")[:2])) for name in names if name.startswith("o")}
        for t, trainer in enumerate(self._trainers):
            for i in range(len(trainer._params)):
                if (t, i) in packed_states:
                    self._create(t, i)
                elif i in trainer._updaters[0].states and list(leaves(trainer._updaters[0].states[i])):
                    for updater in trainer._updaters:
                        del updater.states[i]
        self._unused = {
            (t, i): [updater.states[i] for updater in self._trainers[t]._updaters]
            for t, i in untouched
            if i in self._trainers[t]._updaters[0].states
        }

    def scale_momentum(self, ratio: float, *trainers: Any) -> None:
        """Multiply the momentum of SGD and NAG by `ratio`, of the given trainers, or of all if none are given.

        SGD and NAG keep the learning rate inside their momentum buffer; MXNet's other optimizers apply the rate
        outside.
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
                    # With multi_precision SGD and NAG keep (buffer, weights), other optimizers (weights, buffer).
                    momentum = state[0] if isinstance(state, list | tuple) else state
                    momentum *= ratio
