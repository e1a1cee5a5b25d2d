"""Presents a Module's parameters and optimizer states like a Gluon Trainer's, so that Gluon's state format is used.

A Module uses new arrays for a batch of another size (as in validation), so no array is referenced after a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.protocol.messages import Position
from dyntrain.training.sampling.statistics import Doubles
from dyntrain.training.worker.state.block import allocate
from dyntrain.training.worker.state.training_state import TrainingState


class _Parameter:
    """One parameter of a Module on all contexts. `gradients` is empty for a parameter that does not train."""

    def __init__(self, name: str, arrays: Sequence[Any], gradients: Sequence[Any]) -> None:
        self.name, self._data, self._gradients = (
            name,
            list(arrays),
            [gradient for gradient in gradients if gradient is not None],
        )
        self.grad_req = "write" if self._gradients else "null"
        self.shape, self.dtype = arrays[0].shape, arrays[0].dtype

    def list_data(self) -> list[Any]:
        return self._data

    def list_grad(self) -> list[Any]:
        return self._gradients


class _StatesOfContext:
    """One context's optimizer states in a Module's updater, which stores parameter i under i * contexts + context."""

    def __init__(self, states: dict[int, Any], context: int, contexts: int) -> None:
        self._states, self._context, self._contexts = states, context, contexts

    def _key(self, param_number: int) -> int:
        return param_number * self._contexts + self._context

    def __contains__(self, param_number: int) -> bool:
        return self._key(param_number) in self._states

    def __getitem__(self, param_number: int) -> Any:
        return self._states[self._key(param_number)]

    def __setitem__(self, param_number: int, state: Any) -> None:
        self._states[self._key(param_number)] = state

    def __delitem__(self, param_number: int) -> None:
        del self._states[self._key(param_number)]


class _Updater:
    def __init__(self, updater: Any, context: int, contexts: int) -> None:
        self.optimizer, self.sync_state_context = updater.optimizer, updater.sync_state_context
        self.states = _StatesOfContext(updater.states, context, contexts)
        self.states_synced = _StatesOfContext(updater.states_synced, context, contexts)


class _Trainer:
    def __init__(self, parameters: list[_Parameter], updater: Any, contexts: int) -> None:
        self._params, self._optimizer = parameters, updater.optimizer
        self._updaters = [_Updater(updater, context, contexts) for context in range(contexts)]


class ModuleState:
    """The training state of a bound Module, with the interface `JobState`.

    The Module's optimizer must run on the workers.
    """

    def __init__(self, module: Any) -> None:
        self._module = module

    def _current_state(self) -> TrainingState:
        module = self._module
        exec_group = module._exec_group
        trained_parameters = [
            _Parameter(*names_and_arrays)
            for names_and_arrays in zip(
                exec_group.param_names, exec_group.param_arrays, exec_group.grad_arrays, strict=True
            )
        ]
        aux_parameters = [
            _Parameter(name, arrays, ()) for name, arrays in zip(module._aux_names, exec_group.aux_arrays, strict=True)
        ]
        trainer = _Trainer(trained_parameters, module._updater, len(module._context))
        return TrainingState({param.name: param for param in [*trained_parameters, *aux_parameters]}, trainer)

    @property
    def layout(self) -> str:
        """A digest of the shapes and types of the parameters, and of the optimizer's name."""
        return self._current_state().layout

    @property
    def gradient_keys(self) -> list[tuple[str, tuple[int, ...], str]]:
        return self._current_state().gradient_keys

    @property
    def gradients(self) -> list[Any]:
        return [gradients[0] for gradients in self._module._exec_group.grad_arrays if gradients[0] is not None]

    def statistics(self) -> tuple[Doubles, Doubles]:
        return self._current_state().statistics()

    def set_statistics(self, means: Doubles, variances: Doubles) -> None:
        self._current_state().set_statistics(means, variances)
        self._module._params_dirty = True

    @property
    def nbytes(self) -> int:
        return self._current_state().nbytes

    def pack(self, position: Position, allocate: Callable[[int], memoryview] = allocate) -> memoryview:
        return self._current_state().pack(position, allocate)

    def sampled_checksums(self, position: Position) -> tuple[tuple[str, str], ...]:
        return self._current_state().sampled_checksums(position)

    def checks(self, block: bytes | bytearray | memoryview) -> tuple[tuple[str, str], ...]:
        return self._current_state().checks(block)

    def install(self, block: bytes | bytearray | memoryview) -> Position:
        position = self._current_state().install(block)
        self._module._params_dirty = True  # the host's copies are outdated
        return position
