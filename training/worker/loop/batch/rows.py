"""Values that belong to the rows of a batch and continue in the next batch, such as an RNN's hidden states.

Row k of a batch follows row k of the previous batch. Membership changes move rows to other workers, and a lost worker
loses its rows. So all workers store the values of all rows. Each step sums the rows' values together with the
gradients: each worker adds the values of its own rows, and zeros for all other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dyntrain.training.sampling.batching import PerWorker
from dyntrain.training.sampling.sharding import Indices
from dyntrain.training.worker.arrays import is_array, rows_of
from dyntrain.training.worker.loop.loop_config import LoopConfig
from dyntrain.training.worker.membership.membership import Key
from dyntrain.training.worker.state.slots import zeros_like

ROWS_ACCUMULATE_ERROR = (
    "job.rows() with accumulated gradients (grad_req='add'): use job.trainer(..., accumulate=K), so that no row "
    "changes its worker between two batches of an update"
)
OUTSIDE_LOOP_ERROR = "job.rows(...).mine was used outside of the loop over the batches: it has the current batch's rows"
SET_LATE_ERROR = (
    "job.rows(...).mine was set after trainer.step(): set it before, because the step sums it over all workers"
)


class Rows:
    """Values of a batch's rows, made by `job.rows`. `whole`: the values of all rows, a part of the job's state."""

    def __init__(self, number: int, arrays: Any, axis: int) -> None:
        self._single = is_array(arrays)
        array_list = [arrays] if self._single else list(arrays)
        if not array_list or not all(is_array(array) and array.ndim > axis >= 0 for array in array_list):
            raise ValueError(
                f"job.rows(arrays, axis={axis}) takes an MXNet array, or a list of them, with the batch's rows along "
                f"axis {axis}, as a recurrent layer's begin_state(batch_size=...) returns"
            )
        if len(row_counts := {array.shape[axis] for array in array_list}) > 1:
            raise ValueError(
                f"job.rows(arrays, axis={axis}): the arrays have different numbers of rows, {sorted(row_counts)}: give "
                "arrays with equal numbers"
            )
        self.count, self._axis, self._number = row_counts.pop(), axis, number
        self.whole = [array.copy() for array in array_list]
        self._initial = [array.copy() for array in array_list]
        self._own: tuple[int, int] | None = None  # this worker's first row in the batch, and the row after its last
        self._mine: list[Any] | None = None  # values that the script has set since the last sum
        self._summed = False
        self._sums: list[Any] = []

    @property
    def mine(self) -> Any:
        """The values of this worker's rows in the current batch, detached from their computation; a list if `job.rows`
        got a list.
        """
        first_row, end_row = self._own_rows()
        own_arrays = self._mine or [rows_of(array, self._axis, first_row, end_row) for array in self.whole]
        return own_arrays[0] if self._single else list(own_arrays)

    @mine.setter
    def mine(self, values: Any) -> None:
        first_row, end_row = self._own_rows()
        if self._summed:
            raise RuntimeError(SET_LATE_ERROR)
        array_list = [values] if is_array(values) else list(values)
        expected_shapes = [
            (*array.shape[: self._axis], end_row - first_row, *array.shape[self._axis + 1 :]) for array in self.whole
        ]
        if [tuple(array.shape) for array in array_list] != expected_shapes:
            raise ValueError(
                f"job.rows(...).mine was set to arrays of shapes {[array.shape for array in array_list]}: must have "
                f"shapes {expected_shapes}"
            )
        self._mine = [array.detach() for array in array_list]

    def reset(self) -> None:
        """Restore all rows to the values given to `job.rows`. Call `reset` on every worker, before the loop over the
        batches.
        """
        if self._own is not None:
            raise RuntimeError(
                "job.rows(...).reset() was called within a batch: call it before the loop over the batches"
            )
        for array, initial_array in zip(self.whole, self._initial, strict=True):
            initial_array.copyto(array)

    def _own_rows(self) -> tuple[int, int]:
        if self._own is None:
            raise RuntimeError(OUTSIDE_LOOP_ERROR)
        return self._own

    # ---- for the loop

    def summed_keys(self) -> list[Key]:
        return [
            (f"rows{self._number}.{index}", tuple(array.shape), np.dtype(array.dtype).name)
            for index, array in enumerate(self.whole)
        ]

    def begin_batch(self, own_rows: Indices) -> None:
        """Begin a batch. `own_rows` are the rows that this worker computes. A worker with an empty share computes the
        batch's first rows, whose results count only on another worker.
        """
        self._own, self._summed = (int(own_rows[0]), int(own_rows[-1]) + 1), False

    def end_batch(self, undone: bool) -> None:
        """End the batch; if the step is `undone`, drop the row values that the script has set."""
        self._own = None
        if undone:
            self._mine = None

    def own_share(self, size: int, adds_own: bool, adds_rest: bool) -> list[tuple[str, Any]]:
        """Return the kvstore keys and this worker's summands of the rows' values, in a step whose batch has `size`
        rows.

        `adds_own`: whether this worker adds the values of its own rows, and not zeros. `adds_rest`: whether this worker
        adds the rows beyond a shorter batch; exactly one worker must add these rows.
        """
        first_row, end_row = self._own_rows()
        self._sums = [zeros_like(array) for array in self.whole]
        own_rows = self.mine
        for row_sums, array, own_values in zip(
            self._sums, self.whole, [own_rows] if self._single else own_rows, strict=True
        ):
            if adds_own:
                row_sums[self._slice(first_row, end_row)] = own_values
            if adds_rest and size < self.count:
                row_sums[self._slice(size, self.count)] = array[self._slice(size, self.count)]
        self._summed = True
        return [(name, row_sums) for (name, _, _), row_sums in zip(self.summed_keys(), self._sums, strict=True)]

    def _slice(self, first_row: int, end_row: int) -> tuple[slice, ...]:
        return (*[slice(None)] * self._axis, slice(first_row, end_row))

    def take_sums(self) -> None:
        """Replace the values of all rows by their sums over all workers."""
        for array, row_sums in zip(self.whole, self._sums, strict=True):
            row_sums.copyto(array)
        self._mine = None


def refuse_rows(rows: Sequence[Rows], config: LoopConfig) -> None:
    """Raise ValueError if options keep a batch's rows from continuing the last batch's rows, as `job.rows` needs."""
    if not rows:
        return
    if isinstance(config.batching, PerWorker) or config.local_batch_at_most is not None:
        raise ValueError("job.rows() with batching=PerWorker(...) or local_batch_at_most=: leave these options out")
    if config.drawn is None:
        raise ValueError(
            "job.rows(): in the job's random order no row continues a row of the previous batch. Give the order as "
            "job.loader(..., batch_sampler=[[...], ...]), with the indices of each batch's rows"
        )
    for row_values in rows:
        if row_values.count < config.largest_batch:
            raise ValueError(
                f"job.rows() has {row_values.count} rows, but a batch has {config.largest_batch} rows: give "
                "arrays with as many rows as a batch"
            )
