"""Parameters that a forward pass writes, as a spectral norm does with its vector.

They are equal on all workers only as long as each makes the same passes from the same values. So the job finds them, in
each worker's first batch, by what the batch has changed before its update, other than by lines of the script outside of
its nets. A step that is void sets them back, and so does each end of an epoch to where its last step left them:
validation may make more passes on one worker than another.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from dyntrain.training.worker.arrays import on_host
from dyntrain.training.worker.state.slots import overwrite, same
from dyntrain.training.worker.state.training_state import TrainingState

log = logging.getLogger(__name__)


class ForwardWrites:
    """Of this process: its first batch is looked at, others' tell the rest."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, Any]] = []  # (parameter, a copy in the host's memory)
        self._since: dict[int, Any] = {}  # likewise, since the script itself wrote to the array of this id
        self._written: set[int] = set()  # ids of arrays that a pass wrote to before the script did
        self._looked = False

    def take(self, state: TrainingState) -> None:
        """A batch is in hand."""
        if not self._looked and not self._before:
            self._before = [(p, on_host(p.list_data()[0])) for p in state.equal]

    def put_back(self) -> None:
        """As they were before the first batch; once another one is in hand, nothing."""
        for param, copy in self._before:
            for data in param.list_data():
                overwrite(data, copy)

    def put_down(self, undone: bool) -> None:
        """After an undone batch the next one is looked at."""
        self._before, self._looked = [], self._looked or not undone
        self._since, self._written = {}, set()

    def script_writes(self, array: Any) -> None:
        """To what may be a weight, outside of its nets: from now on a pass is known by what differs from that."""
        for param, copy in self._before:
            if param.list_data()[0] is array and not same(array, self._since.get(id(array), copy)):
                self._written.add(id(array))

    def script_wrote(self, array: Any) -> None:
        if any(param.list_data()[0] is array for param, _ in self._before):
            self._since[id(array)] = on_host(array)

    def flags(self, state: TrainingState) -> list[float]:
        """For each parameter that must be equal on all workers, 1 where the batch has written to it, before its
        update.
        """
        if not self._before:
            return [0.0] * len(state.equal)
        return [float(self._is_written(param.list_data()[0], copy)) for param, copy in self._before]

    def _is_written(self, array: Any, copy: Any) -> bool:
        return id(array) in self._written or not same(array, self._since.get(id(array), copy))

    def learn(self, state: TrainingState, written: Sequence[int]) -> None:
        """Some worker's batch has written to these."""
        known = state.own.get("written", [])
        if set(written) - set(known):
            state.own["written"] = sorted({*known, *written})
            log.warning(
                "the forward pass writes to %s: a step that is void sets them back, and an epoch's end what passes "
                "outside of its steps have written",
                ", ".join(p.name for p in state.written),
            )
