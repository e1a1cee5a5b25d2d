"""Detect parameters that a forward pass changes, such as the vector of a spectral normalization.

Parameters that forward passes change are equal on all workers only if all workers make the same passes. So each worker
finds the parameters that change in its first batch before the update. Parameters that only the script itself writes to,
outside of its nets, are left out. A void step restores the parameters that forward passes change. The end of an epoch
restores the parameters that forward passes change to their values from after the epoch's last step, because validation
may make more forward passes on one worker than on another.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from dyntrain.training.worker.arrays import copy_to_host
from dyntrain.training.worker.state.slots import overwrite, same
from dyntrain.training.worker.state.training_state import TrainingState

log = logging.getLogger(__name__)


class ForwardWrites:
    """Finder of the parameters that forward passes change, which examines the first batch that this process makes."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, Any]] = []  # (parameter, a copy in the host's memory)
        self._since: dict[int, Any] = {}  # by the array's id: copy after the script itself wrote to it
        self._written: set[int] = set()  # ids of arrays that a pass wrote before the script did
        self._looked = False

    def begin_batch(self, state: TrainingState) -> None:
        """Copy the parameters when the process's first batch begins, to find those that the batch changes."""
        if not self._looked and not self._before:
            self._before = [(param, copy_to_host(param.list_data()[0])) for param in state.equal]

    def put_back(self) -> None:
        """Restore the values that the parameters had before the process's first batch; does nothing after the first
        batch.
        """
        for param, host_copy in self._before:
            for array in param.list_data():
                overwrite(array, host_copy)

    def end_batch(self, undone: bool) -> None:
        """End the examination of the first batch; if the batch was undone, the next batch is examined."""
        self._before, self._looked = [], self._looked or not undone
        self._since, self._written = {}, set()

    def script_writes(self, array: Any) -> None:
        """Record whether a forward pass has changed `array`, before the script itself writes to `array` outside of its
        nets.

        After the script's write, a change by a forward pass shows as a difference from the values that the script
        wrote.
        """
        for param, host_copy in self._before:
            if param.list_data()[0] is array and not same(array, self._since.get(id(array), host_copy)):
                self._written.add(id(array))

    def script_wrote(self, array: Any) -> None:
        if any(param.list_data()[0] is array for param, _ in self._before):
            self._since[id(array)] = copy_to_host(array)

    def flags(self, state: TrainingState) -> list[float]:
        """Return a flag for each parameter that must be equal on all workers.

        The flag is 1 if a forward pass of the examined batch has changed the parameter before the update, otherwise 0.
        """
        if not self._before:
            return [0.0] * len(state.equal)
        return [float(self._is_written(param.list_data()[0], host_copy)) for param, host_copy in self._before]

    def _is_written(self, array: Any, host_copy: Any) -> bool:
        return id(array) in self._written or not same(array, self._since.get(id(array), host_copy))

    def store_written_indices(self, state: TrainingState, written: Sequence[int]) -> None:
        """Store in the job's state the indices of the parameters (`written`) that any worker's forward
        passes change.
        """
        known_indices = state.own.get("written", [])
        if set(written) - set(known_indices):
            state.own["written"] = sorted({*known_indices, *written})
            log.warning(
                "the forward pass writes to %s: a void step restores these parameters, and an epoch's end undoes "
                "passes outside of steps",
                ", ".join(param.name for param in state.written),
            )
