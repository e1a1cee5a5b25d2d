"""The stock of idle reserved capacity, that is, supply less demand, and how pools draw on the stock.

An instance uses up the capacity reservation in which it runs, else a zonal Reserved Instance of exactly its kind, else
a regional Reserved Instance. AWS bills a capacity reservation like an instance, even when unused, and regional Reserved
Instances discount it. So each slot of a capacity reservation counts as demand on regional Reserved Instances. An idle
slot that a regional Reserved Instance pays for is one spare instance, not two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from dyntrain.controller.core.pool.inputs import (
    INFLEXIBLE,
    LINUX,
    Capacity,
    Inputs,
    Reserved,
    family,
    platform_of,
    units,
)

Key = tuple[str, ...]


class Kind(Protocol):
    """The properties of an instance that a reservation must match."""

    @property
    def instance_type(self) -> str: ...
    @property
    def platform(self) -> str: ...
    @property
    def tenancy(self) -> str: ...


@dataclass(frozen=True)
class Entry:
    """One line of the arithmetic. `amount` is signed, in instances of the line's own type or in normalised units."""

    text: str
    amount: float
    unit: str = "instances"


@dataclass(frozen=True)
class Stock:
    """Idle capacity: slots by capacity reservation, zonal and regional instances by kind, and normalised units by
    instance family.
    """

    slots: Mapping[str, int] = field(default_factory=dict)
    kinds: Mapping[Key, int] = field(default_factory=dict)
    units: Mapping[str, float] = field(default_factory=dict)
    reservations: Mapping[str, Capacity] = field(default_factory=dict)

    def draw(self, kind: Kind, zone: str | None, targeted: tuple[str, ...], count: int) -> tuple[Stock, int]:
        """Take up to `count` instances of a kind. With `zone` None, only capacity that is valid in any zone counts.
        Returns the remaining stock and the number of instances taken.
        """
        slots, kinds, flexible, missing = dict(self.slots), dict(self.kinds), dict(self.units), max(count, 0)
        for name in sorted(slots):
            if _reservation_fits(self.reservations[name], kind, zone, targeted):
                taken = min(missing, slots[name])
                slots[name], missing = slots[name] - taken, missing - taken
        for key in (_key(kind, zone), _key(kind, None)) if zone is not None else (_key(kind, None),):
            taken = min(missing, kinds.get(key, 0))
            kinds[key], missing = kinds.get(key, 0) - taken, missing - taken
        size = flexible_units(kind)
        if size is not None and missing:
            name = family(kind.instance_type)
            taken = min(missing, int(flexible.get(name, 0.0) // size))
            flexible[name], missing = flexible.get(name, 0.0) - taken * size, missing - taken
        return replace(self, slots=slots, kinds=kinds, units=flexible), max(count, 0) - missing


def flexible_units(kind: Kind) -> float | None:
    """Normalised units of the kind; None: regional reservations match the kind by its exact type."""
    flexible = (
        platform_of(kind.platform) == LINUX
        and kind.tenancy == "default"
        and family(kind.instance_type) not in INFLEXIBLE
    )
    return units(kind.instance_type) if flexible else None


def stock_of(inputs: Inputs) -> tuple[Stock, tuple[Entry, ...]]:
    """The idle capacity for the pools, and the lines of its arithmetic. Zonal reservations are used first, then
    regional ones by type, then regional ones in units.
    """
    entries: list[Entry] = []
    earliest_end = inputs.at + inputs.end_margin_seconds
    reservations = {
        entry.id: entry
        for entry in inputs.capacity
        if entry.state == "active" and (entry.end is None or entry.end > earliest_end)
    }
    own_clusters = {cluster.cluster for cluster in inputs.pools}
    slots = _free_slots(inputs, reservations, own_clusters, entries)
    kinds, flexible = _reserved_stock(inputs, earliest_end, entries)
    _subtract_demand(inputs, reservations, own_clusters, kinds, flexible, entries)
    available_kinds = {key: max(count, 0) for key, count in kinds.items()}
    return Stock(
        slots, available_kinds, {name: max(count, 0.0) for name, count in flexible.items()}, reservations
    ), tuple(entries)


def _free_slots(
    inputs: Inputs, reservations: Mapping[str, Capacity], own_clusters: set[str], entries: list[Entry]
) -> dict[str, int]:
    """The free slots of each capacity reservation. The pools' own instances inside a reservation count as free."""
    slots = {}
    for name, entry in sorted(reservations.items()):
        inside = sum(
            use.count
            for use in inputs.usage
            if use.pool in own_clusters and use.capacity_reservation == name and use.running
        )
        slots[name] = min(entry.available + inside, entry.total)
        entries.append(
            Entry(
                f"capacity reservation {name} of {entry.instance_type} in {entry.zone}, idle or the pool's", slots[name]
            )
        )
    return slots


def _reserved_stock(
    inputs: Inputs, earliest_end: float, entries: list[Entry]
) -> tuple[dict[Key, int], dict[str, float]]:
    kinds: dict[Key, int] = {}
    flexible: dict[str, float] = {}
    for purchase in sorted(inputs.reserved, key=lambda line: line.id):
        if purchase.state != "active" or purchase.end <= earliest_end:
            entries.append(
                Entry(f"{purchase.count} {purchase.instance_type} ({purchase.id}) are not active or end too soon", 0)
            )
            continue
        size = flexible_units(purchase) if purchase.zone is None else None
        if size is not None:
            name = family(purchase.instance_type)
            flexible[name] = flexible.get(name, 0.0) + purchase.count * size
            entries.append(
                Entry(
                    f"{purchase.count} {purchase.instance_type} reserved in the region, any size ({purchase.id})",
                    purchase.count * size,
                    "units",
                )
            )
        else:
            kinds[_key(purchase, purchase.zone)] = kinds.get(_key(purchase, purchase.zone), 0) + purchase.count
            entries.append(
                Entry(
                    f"{purchase.count} {purchase.instance_type} reserved in {_scope_text(purchase)} ({purchase.id})",
                    purchase.count,
                )
            )
    return kinds, flexible


def _subtract_demand(
    inputs: Inputs,
    reservations: Mapping[str, Capacity],
    own_clusters: set[str],
    kinds: dict[Key, int],
    flexible: dict[str, float],
    entries: list[Entry],
) -> None:
    for kind, zone, count, text in _demand_lines(inputs, reservations, own_clusters):
        uncovered = count
        for key in (_key(kind, zone), _key(kind, None)) if zone is not None else (_key(kind, None),):
            taken = min(uncovered, max(kinds.get(key, 0), 0))
            if taken:
                kinds[key], uncovered = kinds[key] - taken, uncovered - taken
                entries.append(Entry(f"{text}: reserved in {key[0] or 'the region'} by type", -taken))
        size, name = flexible_units(kind), family(kind.instance_type)
        if size is not None and uncovered and name in flexible:
            taken_units = min(uncovered * size, flexible[name])
            flexible[name] -= taken_units
            entries.append(Entry(f"{text}: {uncovered} against the region's {name} of any size", -taken_units, "units"))


def _demand_lines(
    inputs: Inputs, reservations: Mapping[str, Capacity], own_clusters: set[str]
) -> Iterator[tuple[Kind, str | None, int, str]]:
    """The kind, zone, count and label of each demand. With zone None, zonal reservations do not apply. The smallest
    sizes come first, as AWS applies reservations.
    """
    other_usage = [
        use
        for use in inputs.usage
        if use.running and use.count and use.pool not in own_clusters and use.capacity_reservation not in reservations
    ]
    for use in sorted(
        other_usage,
        key=lambda line: (
            units(line.instance_type) or 0.0,
            line.instance_type,
            line.zone,
            line.capacity_reservation or "",
        ),
    ):
        inside_unknown = use.capacity_reservation is not None
        yield use, None if inside_unknown else use.zone, use.count, f"{use.count} {use.instance_type} run in {use.zone}"
    for name, entry in sorted(reservations.items(), key=lambda item: (units(item[1].instance_type) or 0.0, item[0])):
        if not entry.block and entry.total:
            yield entry, None, entry.total, f"{entry.total} slots of {name}, used or not"


def _reservation_fits(entry: Capacity, kind: Kind, zone: str | None, targeted: tuple[str, ...]) -> bool:
    if (entry.targeted or entry.block) and entry.id not in targeted:
        return False
    return entry.zone == zone and _key(entry, None) == _key(kind, None)


def _key(kind: Kind, zone: str | None) -> Key:
    return (zone or "", kind.instance_type, platform_of(kind.platform), kind.tenancy)


def _scope_text(purchase: Reserved) -> str:
    return purchase.zone or "the region, this type only"
