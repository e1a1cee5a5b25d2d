"""Values that can be joined, that is, merged. A register is a value that can be compared: the join of two registers is
the greater register. Maps of registers are joined key by key.

Joining is commutative, associative and idempotent, so neither the order of events nor repeated deliveries matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict


class Fact(BaseModel):
    """Base of all facts. Facts are immutable, and unknown fields are ignored. A new field that older versions must not
    ignore needs a new format number of the stored facts (`dyntrain.controller.adapters.formats`).
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)


class Ordered(Protocol):
    @property
    def sort_key(self) -> tuple[Any, ...]: ...


R = TypeVar("R", bound=Ordered)


def latest(first: R | None, second: R | None) -> R | None:
    """The register with the greater sort key. If one argument is None, returns the other argument."""
    if first is None or second is None:
        return first if second is None else second
    return first if first is second or first.sort_key >= second.sort_key else second


def union(first: Mapping[str, R], second: Mapping[str, R]) -> dict[str, R]:
    """The join of two maps of registers: for each key, the greater register."""
    if not second:
        return dict(first)
    joined_map = dict(first)
    for key, new_value in second.items():
        old_value = joined_map.get(key)
        joined_map[key] = new_value if old_value is None or old_value.sort_key < new_value.sort_key else old_value
    return joined_map
