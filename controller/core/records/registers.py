"""Values that can be joined. A register is an ordered value, of which the greatest counts. Maps of registers are joined
key by key.

Joining is commutative, associative and idempotent, so neither the order of events nor repeated deliveries matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict


class Fact(BaseModel):
    """Base of all facts. Facts are immutable, and unknown fields are ignored. A field that must not be ignored needs a
    new format number (`dyntrain.controller.adapters.formats`).
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)


class Ordered(Protocol):
    @property
    def order(self) -> tuple[Any, ...]: ...


R = TypeVar("R", bound=Ordered)


def latest(first: R | None, second: R | None) -> R | None:
    """The join of two registers, that is, the greater one."""
    if first is None or second is None:
        return first if second is None else second
    return first if first is second or first.order >= second.order else second


def union(first: Mapping[str, R], second: Mapping[str, R]) -> dict[str, R]:
    """The join of two maps of registers, key by key."""
    if not second:
        return dict(first)
    merged = dict(first)
    for key, value in second.items():
        known = merged.get(key)
        merged[key] = value if known is None or known.order < value.order else known
    return merged
