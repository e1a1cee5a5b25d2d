"""Values that join: ordered ones, of which the greatest counts, and maps of such values.

Joining is commutative, associative and idempotent, so neither the order nor the number of deliveries can matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict


class Fact(BaseModel):
    """Base of all facts: immutable. Unknown fields are ignored; a change that must not be ignored takes a new format
    number (`dyntrain.controller.adapters.formats`).
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)


class Ordered(Protocol):
    @property
    def order(self) -> tuple[Any, ...]: ...


R = TypeVar("R", bound=Ordered)


def latest(a: R | None, b: R | None) -> R | None:
    """The join of two registers: the greater one."""
    if a is None or b is None:
        return a if b is None else b
    return a if a is b or a.order >= b.order else b


def union(a: Mapping[str, R], b: Mapping[str, R]) -> dict[str, R]:
    """The join of two maps of registers, key by key."""
    if not b:
        return dict(a)
    merged = dict(a)
    for key, value in b.items():
        mine = merged.get(key)
        merged[key] = value if mine is None or mine.order < value.order else mine
    return merged
