"""Which step the rows of an array are of, when it is filled part by part."""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from dyntrain.training.worker.loop.watched.row_steps import NEVER, RowSteps, oldest, rows_of, written

SHAPE = (4, 3)


def filled(*writes: tuple[Any, int], shape: tuple[int, ...] = SHAPE) -> int | RowSteps:
    """By `array[key] = what is of that step`."""
    now: int | RowSteps = NEVER
    for key, since in writes:
        now = written(now, rows_of(key, shape, whole=True), since, shape)
    return now


@pytest.mark.parametrize(
    ("key", "rows"),
    [
        (1, [1]),
        (-1, [3]),
        (np.int64(2), [2]),
        (slice(None), [0, 1, 2, 3]),
        (slice(1, 3), [1, 2]),
        (slice(None, None, 2), [0, 2]),
        (Ellipsis, [0, 1, 2, 3]),
        ((0, slice(None)), [0]),
        ((slice(2), slice(0, 3)), [0, 1]),
    ],
)
def test_rows_that_are_wholly_written_are_of_the_step_of_what_is_written(key: Any, rows: list[int]) -> None:
    now = filled((slice(None), 5), (key, 9))
    steps = [now if isinstance(now, int) else now.of(slice(row, row + 1)) for row in range(4)]
    assert steps == [9 if row in rows else 5 for row in range(4)]


@pytest.mark.parametrize("key", [(0, 1), (slice(None), slice(1, 2)), [0, 1], np.array([0]), (Ellipsis, 0), True])
def test_of_what_is_written_to_some_places_of_a_row_the_oldest_step_counts(key: Any) -> None:
    assert filled((slice(None), 5), (key, 9)) == 5
    assert filled((key, 9)) == 9


def test_arrays_without_rows_and_empty_ones_are_written_as_a_whole() -> None:
    assert written(NEVER, slice(None), 3, ()) == 3
    assert written(NEVER, slice(None), 3, (0, 2)) == 3


def test_a_buffer_that_is_filled_anew_from_its_beginning_is_of_the_rows_that_are_read() -> None:
    now = filled((slice(0, 4), 1), (slice(0, 3), 2))
    assert isinstance(now, RowSteps)
    assert oldest(now) == 1
    assert now.of(slice(0, 3)) == 2
    assert filled((slice(0, 4), 1), (slice(0, 3), 2), (slice(None), NEVER)) == NEVER
