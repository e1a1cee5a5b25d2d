"""Tests of many values against many others: a selection for each change, and all of it in `make matrices`.

What is left out of the selection has the marker `matrix`, so that each case belongs to one of the two.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def crossed(one: Iterable[Any], other: Iterable[Any], each: int = 2) -> list[Any]:
    """Every pair, for `parametrize`. Selected: each of `one` with `each` of `other`, by turns, so that all of `other`
    are taken equally often.
    """
    one, other = list(one), list(other)
    chosen = {(row, (row * each + turn) % len(other)) for row in range(len(one)) for turn in range(each)}
    return _marked([one, other], chosen)


def pairwise(*factors: Iterable[Any]) -> list[Any]:
    """Every combination, for `parametrize`. Selected: so many that each value of a factor meets each of another one."""
    values = [list(factor) for factor in factors]
    every = list(itertools.product(*(range(len(factor)) for factor in values)))
    missing = {pair for places in every for pair in _pairs(places)}
    chosen = set[tuple[int, ...]]()
    while missing:
        best = max(every, key=lambda places: len(missing.intersection(_pairs(places))))
        chosen.add(best)
        missing.difference_update(_pairs(best))
    return _marked(values, chosen)


def _pairs(places: Sequence[int]) -> list[tuple[tuple[int, int], ...]]:
    return list(itertools.combinations(enumerate(places), 2))


def _marked(values: Sequence[Sequence[Any]], chosen: set[tuple[int, ...]]) -> list[Any]:
    cases = []
    for places in itertools.product(*(range(len(factor)) for factor in values)):
        case = [factor[place] for factor, place in zip(values, places, strict=True)]
        names = "-".join(_name(value, place) for value, place in zip(case, places, strict=True))
        marks = () if places in chosen else pytest.mark.matrix
        cases.append(pytest.param(*case, id=names, marks=marks))
    return cases


def _name(value: Any, place: int) -> str:
    if isinstance(value, tuple):
        return "-".join(_name(part, place) for part in value)
    if isinstance(value, str | int | float | bool | None):
        return str(value)
    return str(getattr(value, "__name__", place))
