"""Steps of the rows of an array that is filled part by part, as a queue is, or a buffer with a short batch in it."""

from __future__ import annotations

from typing import Any

import numpy as np

NEVER = 1 << 62  # after every step


class RowSteps:
    """The first step whose samples have a part in each row along the first axis; NEVER: none has."""

    def __init__(self, steps: Any) -> None:
        self.steps = steps

    def of(self, rows: slice) -> int:
        return int(self.steps[rows].min(initial=NEVER))


def oldest(found: int | RowSteps) -> int:
    return found if isinstance(found, int) else found.of(slice(None))


def rows_of(key: Any, shape: tuple[int, ...], whole: bool = False) -> slice | None:
    """Those that `array[key]` is of, or has the `whole` of. None: that does not show, or it has parts of them."""
    first, *others = key if isinstance(key, tuple) and key else (key,)
    if not shape or (whole and not all(_is_all(each, n) for each, n in zip(others, shape[1:], strict=False))):
        return None
    if first is Ellipsis:
        return slice(None) if not others else None
    if isinstance(first, int | np.integer) and not isinstance(first, bool):
        return slice(int(first), int(first) + 1 or None)
    return first if isinstance(first, slice) else None


def _is_all(key: Any, length: int) -> bool:
    return isinstance(key, slice) and key.indices(length) == (0, length, 1)


def written(before: int | RowSteps, rows: slice | None, since: int, shape: tuple[int, ...]) -> int | RowSteps:
    """What an array is then that was `before`, when its `rows` have become `since`; None: some places of it."""
    if rows is None or not shape or not shape[0]:
        return min(oldest(before), since)
    steps = before.steps.copy() if isinstance(before, RowSteps) else np.full(shape[0], before)
    steps[rows] = since
    return int(steps[0]) if (steps == steps[0]).all() else RowSteps(steps)
