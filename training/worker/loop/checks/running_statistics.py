"""Find running statistics that a forward pass changes, but that are not part of the job's state.

An example is a BatchNorm's running mean in a net of which a trainer has only the head. Without a place in the job's
state, each worker has a running mean of its own, and a joining worker begins with the initial mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet import autograd  # isort: skip
from dyntrain.training.worker.loop.instrument import Listener
from dyntrain.training.worker.state.training_state import differentiable

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop


class RunningStatistics(Listener):
    """Check whether a loop's first forward passes change non-training parameters that are not in the job's state."""

    def __init__(self, loop: TrainingLoop) -> None:
        self._loop = loop
        self._before: dict[Any, Any] = {}  # parameters that do not train, and their copies

    def calls_block(self, block: Any) -> None:
        assert self._loop.current is not None
        if self._loop.current.is_first and autograd.is_training():
            for param in block.collect_params().values():
                if not differentiable(param) and param._data is not None and param not in self._before:
                    self._before[param] = param.list_data()[0].copy()

    def report_changes(self) -> None:
        """Report parameters outside of the job's state that the first batch changed, before gradients are summed."""
        loop, state_parameters = self._loop, set(self._loop.state.parameters)
        for param, copy_before in self._before.items():
            has_changed = copy_before.asnumpy().tobytes() != param.list_data()[0].asnumpy().tobytes()
            if param not in state_parameters and has_changed and loop.current is not None:
                loop.current.refused |= loop.findings.find("DT508", name=param.name) is not None
        self._before.clear()
