"""Reserved Instances and capacity reservations, which the AWS emulator moto lacks. Tests and users create reservations
with this module, and describe calls show the reservations.

Reservations have no effect on launches or bills. Tests set the number of instances that run in a capacity reservation.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape

from dyntrain.controller.local.calls import ApiAnswer, ApiCall
from dyntrain.controller.local.events import timestamp

EC2_XML_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
YEAR_SECONDS = 365 * 86_400.0


@dataclass(frozen=True)
class ReservedInstances:
    """A purchase of Reserved Instances. Without `zone`, the purchase is regional, and describe calls show no zone."""

    id: str  # of the purchase
    instance_type: str
    count: int  # number of reserved instances
    zone: str | None
    platform: str  # productDescription, such as Linux/UNIX (Amazon VPC)
    tenancy: str
    start: float  # seconds since the Unix epoch
    end: float  # seconds since the Unix epoch
    state: str = "active"


@dataclass(frozen=True)
class CapacityReservation:
    id: str  # of the reservation
    instance_type: str
    total: int  # number of reserved instances
    zone: str
    platform: str  # instancePlatform, such as Linux/UNIX
    tenancy: str
    criteria: str  # instanceMatchCriteria: open or targeted
    kind: str  # reservationType: default or capacity-block
    end: float | None  # seconds since the Unix epoch, or None without an end
    used: int = 0  # number of instances that run in the reservation
    state: str = "active"


class Reservations:
    """All reservations of the account. Any thread may call the methods of `Reservations`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._purchases: dict[str, ReservedInstances] = {}
        self._capacity_reservations: dict[str, CapacityReservation] = {}

    def reserve_instances(
        self,
        instance_type: str,
        count: int,
        zone: str | None = None,
        platform: str = "Linux/UNIX (Amazon VPC)",
        tenancy: str = "default",
        seconds: float = YEAR_SECONDS,
    ) -> str:
        """Buy Reserved Instances, and return the id of the purchase."""
        bought_at = time.time()
        purchase = ReservedInstances(
            str(uuid.uuid4()), instance_type, count, zone, platform, tenancy, bought_at, bought_at + seconds
        )
        with self._lock:
            self._purchases[purchase.id] = purchase
        return purchase.id

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
        """Create an on-demand capacity reservation, or a Capacity Block if `kind` is capacity-block; return the id."""
        ends_at = time.time() + seconds if seconds is not None else None
        reservation = CapacityReservation(
            f"cr-{uuid.uuid4().hex[:17]}", instance_type, count, zone, platform, tenancy, criteria, kind, ends_at
        )
        with self._lock:
            self._capacity_reservations[reservation.id] = reservation
        return reservation.id

    def set_used_count(self, reservation: str, used_count: int) -> None:
        """Set how many instances run in the capacity reservation. Raises KeyError for an unknown reservation id."""
        with self._lock:
            self._capacity_reservations[reservation] = replace(
                self._capacity_reservations[reservation], used=used_count
            )

    def end_reservation(self, reservation: str) -> None:
        """Retire Reserved Instances, or cancel a capacity reservation. Raises KeyError for an unknown
        reservation id.
        """
        with self._lock:
            if reservation in self._purchases:
                self._purchases[reservation] = replace(self._purchases[reservation], state="retired")
            else:
                self._capacity_reservations[reservation] = replace(
                    self._capacity_reservations[reservation], state="cancelled"
                )

    def answer_call(self, call: ApiCall) -> ApiAnswer | None:
        """The answer to a describe call for reservations, or None for any other API call."""
        if call.service != "ec2" or call.action not in ("DescribeReservedInstances", "DescribeCapacityReservations"):
            return None
        requested_states = _requested_states(call)
        with self._lock:
            purchases, capacity_reservations = (
                list(self._purchases.values()),
                list(self._capacity_reservations.values()),
            )
        if call.action == "DescribeReservedInstances":
            return _xml_answer(
                call.action,
                "reservedInstancesSet",
                [
                    _purchase_fields(reservation)
                    for reservation in purchases
                    if not requested_states or reservation.state in requested_states
                ],
            )
        return _xml_answer(
            call.action,
            "capacityReservationSet",
            [
                _capacity_fields(reservation)
                for reservation in capacity_reservations
                if not requested_states or reservation.state in requested_states
            ],
        )


def _requested_states(call: ApiCall) -> list[str]:
    filter_prefixes = [
        key.removesuffix(".Name")
        for key, value in call.form.items()
        if key.startswith("Filter.") and key.endswith(".Name") and value == "state"
    ]
    return [value for filter_prefix in filter_prefixes for value in call.list_values(f"{filter_prefix}.Value")]


def _purchase_fields(purchase: ReservedInstances) -> dict[str, str]:
    scope_fields = (
        {"scope": "Region"}
        if purchase.zone is None
        else {"scope": "Availability Zone", "availabilityZone": purchase.zone}
    )
    return scope_fields | {
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
    end_date_fields = (
        {"endDateType": "unlimited"}
        if reservation.end is None
        else {"endDateType": "limited", "endDate": timestamp(reservation.end)}
    )
    return end_date_fields | {
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


def _xml_answer(action: str, element: str, items: list[dict[str, str]]) -> ApiAnswer:
    items_xml = "".join(
        f"<item>{''.join(f'<{name}>{escape(value)}</{name}>' for name, value in item.items())}</item>" for item in items
    )
    inner_xml = f"<requestId>{uuid.uuid4()}</requestId><{element}>{items_xml}</{element}>"
    xml_text = f'<{action}Response xmlns="{EC2_XML_NAMESPACE}">{inner_xml}</{action}Response>'
    return ApiAnswer(200, "text/xml;charset=UTF-8", xml_text.encode())
