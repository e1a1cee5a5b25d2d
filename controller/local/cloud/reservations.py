"""Reserved Instances and capacity reservations, which moto lacks. Tests and users create reservations here, and
describe calls show them.

Reservations have no effect on launches or bills. `use` sets the number of instances that run in a capacity reservation.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape

from dyntrain.controller.local.calls import Answer, Call
from dyntrain.controller.local.events import timestamp

EC2_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
YEAR = 365 * 86_400.0


@dataclass(frozen=True)
class ReservedInstances:
    """A purchase of Reserved Instances. Without `zone` the purchase is regional, and describe calls show no zone."""

    id: str
    instance_type: str
    count: int
    zone: str | None
    platform: str
    tenancy: str
    start: float
    end: float
    state: str = "active"


@dataclass(frozen=True)
class CapacityReservation:
    id: str
    instance_type: str
    total: int
    zone: str
    platform: str
    tenancy: str
    criteria: str
    kind: str
    end: float | None
    used: int = 0
    state: str = "active"


class Reservations:
    """All reservations. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reserved: dict[str, ReservedInstances] = {}
        self._capacity: dict[str, CapacityReservation] = {}

    def reserve(
        self,
        instance_type: str,
        count: int,
        zone: str | None = None,
        platform: str = "Linux/UNIX (Amazon VPC)",
        tenancy: str = "default",
        seconds: float = YEAR,
    ) -> str:
        """Buy Reserved Instances; returns the id of the purchase."""
        now = time.time()
        bought = ReservedInstances(str(uuid.uuid4()), instance_type, count, zone, platform, tenancy, now, now + seconds)
        with self._lock:
            self._reserved[bought.id] = bought
        return bought.id

    def reserve_capacity(
        self,
        instance_type: str,
        count: int,
        zone: str,
        platform: str = "Linux/UNIX",
        tenancy: str = "default",
        criteria: str = "open",
        kind: str = "default",
        seconds: float | None = None,
    ) -> str:
        """Create an on-demand capacity reservation, or with `kind` capacity-block a Capacity Block; returns the id."""
        end = time.time() + seconds if seconds is not None else None
        reservation = CapacityReservation(
            f"cr-{uuid.uuid4().hex[:17]}", instance_type, count, zone, platform, tenancy, criteria, kind, end
        )
        with self._lock:
            self._capacity[reservation.id] = reservation
        return reservation.id

    def use(self, reservation: str, used: int) -> None:
        """Set how many instances run in the capacity reservation. Raises KeyError for an unknown id."""
        with self._lock:
            self._capacity[reservation] = replace(self._capacity[reservation], used=used)

    def end(self, reservation: str) -> None:
        """Retire Reserved Instances, or cancel a capacity reservation. Raises KeyError for an unknown id."""
        with self._lock:
            if reservation in self._reserved:
                self._reserved[reservation] = replace(self._reserved[reservation], state="retired")
            else:
                self._capacity[reservation] = replace(self._capacity[reservation], state="cancelled")

    def answer(self, call: Call) -> Answer | None:
        """The answer to a describe call, or None for a call that is not about reservations."""
        if call.service != "ec2" or call.action not in ("DescribeReservedInstances", "DescribeCapacityReservations"):
            return None
        states = _filtered_states(call)
        with self._lock:
            reserved, capacity = list(self._reserved.values()), list(self._capacity.values())
        if call.action == "DescribeReservedInstances":
            return _answer(
                call.action,
                "reservedInstancesSet",
                [
                    _purchase_fields(reservation)
                    for reservation in reserved
                    if not states or reservation.state in states
                ],
            )
        return _answer(
            call.action,
            "capacityReservationSet",
            [_capacity_fields(reservation) for reservation in capacity if not states or reservation.state in states],
        )


def _filtered_states(call: Call) -> list[str]:
    prefixes = [
        key.removesuffix(".Name")
        for key, value in call.form.items()
        if key.startswith("Filter.") and key.endswith(".Name") and value == "state"
    ]
    return [value for prefix in prefixes for value in call.values(f"{prefix}.Value")]


def _purchase_fields(purchase: ReservedInstances) -> dict[str, str]:
    place = (
        {"scope": "Region"}
        if purchase.zone is None
        else {"scope": "Availability Zone", "availabilityZone": purchase.zone}
    )
    return place | {
        "reservedInstancesId": purchase.id,
        "instanceType": purchase.instance_type,
        "instanceCount": str(purchase.count),
        "productDescription": purchase.platform,
        "instanceTenancy": purchase.tenancy,
        "state": purchase.state,
        "start": timestamp(purchase.start),
        "end": timestamp(purchase.end),
        "duration": str(int(purchase.end - purchase.start)),
        "offeringClass": "standard",
        "offeringType": "No Upfront",
        "currencyCode": "USD",
    }


def _capacity_fields(reservation: CapacityReservation) -> dict[str, str]:
    ends = (
        {"endDateType": "unlimited"}
        if reservation.end is None
        else {"endDateType": "limited", "endDate": timestamp(reservation.end)}
    )
    return ends | {
        "capacityReservationId": reservation.id,
        "instanceType": reservation.instance_type,
        "instancePlatform": reservation.platform,
        "availabilityZone": reservation.zone,
        "tenancy": reservation.tenancy,
        "totalInstanceCount": str(reservation.total),
        "availableInstanceCount": str(reservation.total - reservation.used),
        "instanceMatchCriteria": reservation.criteria,
        "reservationType": reservation.kind,
        "state": reservation.state,
    }


def _answer(action: str, element: str, items: list[dict[str, str]]) -> Answer:
    rows = "".join(
        f"<item>{''.join(f'<{name}>{escape(value)}</{name}>' for name, value in item.items())}</item>" for item in items
    )
    inner = f"<requestId>{uuid.uuid4()}</requestId><{element}>{rows}</{element}>"
    text = f'<{action}Response xmlns="{EC2_NAMESPACE}">{inner}</{action}Response>'
    return Answer(200, "text/xml;charset=UTF-8", text.encode())
