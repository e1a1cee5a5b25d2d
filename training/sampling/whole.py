"""Converts numbers that scripts pass to int, if they are whole. Pure."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


def whole(name: str, value: Any, smallest: int = 1) -> int:
    """Convert a whole number to int. `value` may be a float such as 64.0, or a number of NumPy.

    Raises ValueError, whose message contains `name` and `value`, for a value that is not valid.
    """
    number = None
    if isinstance(value, float | np.floating):
        number = int(value) if value.is_integer() else None
    elif not isinstance(value, bool) and hasattr(value, "__index__"):
        try:
            number = operator.index(value)
        except TypeError:  # an array of several numbers is no whole number
            number = None
    if number is None or number < smallest:
        raise ValueError(f"{name}={value!r}: must be a whole number, at least {smallest}")
    return number
