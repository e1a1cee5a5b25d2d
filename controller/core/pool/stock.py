"""The stock of idle reserved capacity: the reserved instances minus the instances that use the reservations. Pools take
instances from the stock of idle reserved capacity.

An instance uses the capacity reservation in which it runs, else a zonal Reserved Instance of exactly its kind, else a
regional Reserved Instance. AWS bills each slot of a capacity reservation like an instance, even if the slot is unused.
A regional Reserved Instance can discount the price of a slot. Each slot of a capacity reservation is therefore treated
as an instance that uses a regional Reserved Instance. An idle slot that a regional Reserved Instance discounts is one
spare instance, not two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from dyntrain.controller.core.pool.inputs import (
    INFLEXIBLE_FAMILIES,
    LINUX,
    Capacity,
    Inputs,
    Reserved,
    family,
    platform_of,
    units,
)

_KindKey = tuple[str, ...]  # zone, instance type, platform and tenancy


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
    """One line of the arithmetic, which shows users how the pools get their sizes. `amount` is a signed number of
    instances of the type that the text names, or of normalised units.
    """

    text: str  # for people
    amount: float  # added to the stock, or subtracted
    unit: str = "instances"  # of the amount


@dataclass(frozen=True)
class Stock:
    """The reserved capacity that no instance uses: free slots of capacity reservations, and unused Reserved Instances.
    Unused Reserved Instances that are valid for any size of an instance family are counted in normalised units.
    """

    slots: Mapping[str, int] = field(default_factory=dict)  # free slots by reservation id
    kinds: Mapping[_KindKey, int] = field(default_factory=dict)  # Reserved Instances by kind
    units: Mapping[str, float] = field(default_factory=dict)  # normalised units by family
    reservations: Mapping[str, Capacity] = field(default_factory=dict)  # by id

    def draw(self, kind: Kind, zone: str | None, targeted: tuple[str, ...], count: int) -> tuple[Stock, int]:
        """Take up to `count` instances of a kind from the stock. If `zone` is None, take only capacity that is valid in
        every zone. Returns the remaining stock and the number of instances that were taken.
        """
        free_slots, kind_counts, units_by_family, missing_count = (
            dict(self.slots),
            dict(self.kinds),
            dict(self.units),
            max(count, 0),
        )
        for reservation_id in sorted(free_slots):
            if _reservation_fits(self.reservations[reservation_id], kind, zone, targeted):
                taken_count = min(missing_count, free_slots[reservation_id])
                free_slots[reservation_id], missing_count = (
                    free_slots[reservation_id] - taken_count,
                    missing_count - taken_count,
                )
        for key in (_key(kind, zone), _key(kind, None)) if zone is not None else (_key(kind, None),):
            taken_count = min(missing_count, kind_counts.get(key, 0))
            kind_counts[key], missing_count = kind_counts.get(key, 0) - taken_count, missing_count - taken_count
        units_per_instance = flexible_units(kind)
        if units_per_instance is not None and missing_count:
            family_name = family(kind.instance_type)
            taken_count = min(missing_count, int(units_by_family.get(family_name, 0.0) // units_per_instance))
            units_by_family[family_name], missing_count = (
                units_by_family.get(family_name, 0.0) - taken_count * units_per_instance,
                missing_count - taken_count,
            )
        return replace(self, slots=free_slots, kinds=kind_counts, units=units_by_family), max(count, 0) - missing_count


def flexible_units(kind: Kind) -> float | None:
    """The number of normalised units of one instance of this kind. Returns None if regional reservations match only the
    exact instance type.
    """
    is_flexible = (
        platform_of(kind.platform) == LINUX
        and kind.tenancy == "default"
        and family(kind.instance_type) not in INFLEXIBLE_FAMILIES
    )
    return units(kind.instance_type) if is_flexible else None


def stock_of(inputs: Inputs) -> tuple[Stock, tuple[Entry, ...]]:
    """The idle capacity that pools can use, and the lines that show users how this capacity was computed. Running
    instances use zonal reservations first, then regional reservations of the exact type, then regional reservations in
    normalised units.
    """
    lines_of_arithmetic: list[Entry] = []
    earliest_valid_end = inputs.at + inputs.end_margin_seconds
    reservations = {
        reservation.id: reservation
        for reservation in inputs.capacity
        if reservation.state == "active" and (reservation.end is None or reservation.end > earliest_valid_end)
    }
    own_clusters = {pool.cluster for pool in inputs.pools}
    slots = _free_slots(inputs, reservations, own_clusters, lines_of_arithmetic)
    kind_counts, units_by_family = _reserved_stock(inputs, earliest_valid_end, lines_of_arithmetic)
    _subtract_demand(inputs, reservations, own_clusters, kind_counts, units_by_family, lines_of_arithmetic)
    available_kinds = {key: max(count, 0) for key, count in kind_counts.items()}
    return Stock(
        slots, available_kinds, {name: max(count, 0.0) for name, count in units_by_family.items()}, reservations
    ), tuple(lines_of_arithmetic)


def _free_slots(
    inputs: Inputs, reservations: Mapping[str, Capacity], own_clusters: set[str], entries: list[Entry]
) -> dict[str, int]:
    """The number of free slots of each capacity reservation. A slot that an instance of one of the pools occupies is
    treated as free.
    """
    slot_counts = {}
    for reservation_id, reservation in sorted(reservations.items()):
        pool_instance_count = sum(
            usage.count
            for usage in inputs.usage
            if usage.pool in own_clusters and usage.capacity_reservation == reservation_id and usage.running
        )
        slot_counts[reservation_id] = min(reservation.available + pool_instance_count, reservation.total)
        entries.append(
            Entry(
                f"capacity reservation {reservation_id} of {reservation.instance_type} in {reservation.zone}, "
                "idle or the pool's",
                slot_counts[reservation_id],
            )
        )
    return slot_counts


def _reserved_stock(
    inputs: Inputs, earliest_end: float, entries: list[Entry]
) -> tuple[dict[_KindKey, int], dict[str, float]]:
    kind_counts: dict[_KindKey, int] = {}
    units_by_family: dict[str, float] = {}
    for purchase in sorted(inputs.reserved, key=lambda line: line.id):
        if purchase.state != "active" or purchase.end <= earliest_end:
            entries.append(
                Entry(f"{purchase.count} {purchase.instance_type} ({purchase.id}) are not active or end too soon", 0)
            )
            continue
        units_per_instance = flexible_units(purchase) if purchase.zone is None else None
        if units_per_instance is not None:
            family_name = family(purchase.instance_type)
            units_by_family[family_name] = units_by_family.get(family_name, 0.0) + purchase.count * units_per_instance
            entries.append(
                Entry(
                    f"{purchase.count} {purchase.instance_type} reserved in the region, any size ({purchase.id})",
                    purchase.count * units_per_instance,
                    "units",
                )
            )
        else:
            kind_counts[_key(purchase, purchase.zone)] = (
                kind_counts.get(_key(purchase, purchase.zone), 0) + purchase.count
            )
            entries.append(
                Entry(
                    f"{purchase.count} {purchase.instance_type} reserved in {_scope_text(purchase)} ({purchase.id})",
                    purchase.count,
                )
            )
    return kind_counts, units_by_family


def _subtract_demand(
    inputs: Inputs,
    reservations: Mapping[str, Capacity],
    own_clusters: set[str],
    kind_counts: dict[_KindKey, int],
    units_by_family: dict[str, float],
    entries: list[Entry],
) -> None:
    for kind, zone, count, text in _demand_lines(inputs, reservations, own_clusters):
        uncovered_count = count
        for key in (_key(kind, zone), _key(kind, None)) if zone is not None else (_key(kind, None),):
            taken_count = min(uncovered_count, max(kind_counts.get(key, 0), 0))
            if taken_count:
                kind_counts[key], uncovered_count = kind_counts[key] - taken_count, uncovered_count - taken_count
                entries.append(Entry(f"{text}: reserved in {key[0] or 'the region'} by type", -taken_count))
        units_per_instance, family_name = flexible_units(kind), family(kind.instance_type)
        if units_per_instance is not None and uncovered_count and family_name in units_by_family:
            taken_units = min(uncovered_count * units_per_instance, units_by_family[family_name])
            units_by_family[family_name] -= taken_units
            entries.append(
                Entry(
                    f"{text}: {uncovered_count} against the region's {family_name} of any size", -taken_units, "units"
                )
            )


def _demand_lines(
    inputs: Inputs, reservations: Mapping[str, Capacity], own_clusters: set[str]
) -> Iterator[tuple[Kind, str | None, int, str]]:
    """The kind, zone, count and text of each group of instances or slots that uses reservations. A group whose zone is
    None uses no zonal reservation. The groups of the smallest instance sizes come first, because AWS applies
    reservations in this order.
    """
    other_usage = [
        use
        for use in inputs.usage
        if use.running and use.count and use.pool not in own_clusters and use.capacity_reservation not in reservations
    ]
    for usage in sorted(
        other_usage,
        key=lambda line: (
            units(line.instance_type) or 0.0,
            line.instance_type,
            line.zone,
            line.capacity_reservation or "",
        ),
    ):
        runs_in_reservation = usage.capacity_reservation is not None
        yield (
            usage,
            None if runs_in_reservation else usage.zone,
            usage.count,
            f"{usage.count} {usage.instance_type} run in {usage.zone}",
        )
    for reservation_id, reservation in sorted(
        reservations.items(), key=lambda item: (units(item[1].instance_type) or 0.0, item[0])
    ):
        if not reservation.block and reservation.total:
            yield reservation, None, reservation.total, f"{reservation.total} slots of {reservation_id}, used or not"


def _reservation_fits(reservation: Capacity, kind: Kind, zone: str | None, targeted: tuple[str, ...]) -> bool:
    if (reservation.targeted or reservation.block) and reservation.id not in targeted:
        return False
    return reservation.zone == zone and _key(reservation, None) == _key(kind, None)


def _key(kind: Kind, zone: str | None) -> _KindKey:
    return (zone or "", kind.instance_type, platform_of(kind.platform), kind.tenancy)


def _scope_text(purchase: Reserved) -> str:
    return purchase.zone or "the region, this type only"
