"""Whole numbers as scripts give them. Pure."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


def whole(name: str, value: Any, least: int = 1) -> int:
    """Also 64.0, which `256 / 4` gives, and a number of NumPy's. Raises ValueError with the name and the value."""
    number = None
    if isinstance(value, float | np.floating):
        number = int(value) if value.is_integer() else None
    elif not isinstance(value, bool) and hasattr(value, "__index__"):
        try:
            number = operator.index(value)
        except TypeError:  # an array that has more than one number
            number = None
    if number is None or number < least:
        raise ValueError(f"{name}={value!r}: must be a whole number, at least {least}")
    return number
