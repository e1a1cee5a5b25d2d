"""Read the account's EC2 reservations and instances, and store the ledger of the pools' claims on reservations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from dyntrain.controller.adapters.aws import Clients, translated_errors
from dyntrain.controller.adapters.dynamodb import DynamoTable
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.core.pool.inputs import LINUX, Capacity, Claim, Reserved, platform_of
from dyntrain.controller.pool.ports import SeenMachine, StoredLedger
from pydantic import TypeAdapter, ValidationError

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import CapacityReservationTypeDef, InstanceTypeDef, ReservedInstancesTypeDef

_SPECIAL_LIFECYCLES = ("spot", "scheduled", "capacity-block")  # of instances that are not on-demand
_LEDGER_KEY: dict[str, Any] = {"pk": {"S": "pool#claims"}, "sk": {"S": "ledger"}}
_CLAIMS_BY_CLUSTER_TYPE = TypeAdapter(dict[str, Claim])


class Ec2Reservations:
    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def reserved_instances(self) -> Sequence[Reserved]:
        with translated_errors("describing Reserved Instances"):
            response = self._clients.ec2().describe_reserved_instances(
                Filters=[{"Name": "state", "Values": ["active"]}]
            )
            return [_parse_reserved_instances(entry) for entry in response["ReservedInstances"]]

    def capacity_reservations(self) -> Sequence[Capacity]:
        with translated_errors("describing capacity reservations"):
            pages = (
                self._clients.ec2()
                .get_paginator("describe_capacity_reservations")
                .paginate(Filters=[{"Name": "state", "Values": ["active"]}])
            )
            return [_parse_capacity_reservation(entry) for page in pages for entry in page["CapacityReservations"]]

    def machines(self) -> Sequence[SeenMachine]:
        machines: list[SeenMachine] = []
        with translated_errors("describing all instances"):
            instance_pages = self._clients.ec2().get_paginator("describe_instances").paginate()
            for page in instance_pages:
                for reservation in page["Reservations"]:
                    machines += [_parse_machine(instance) for instance in reservation.get("Instances", [])]
        return machines


class TableLedger(DynamoTable):
    """The ledger of the pools' claims on EC2 reservations, which is one table item for all clusters. A write of the
    ledger succeeds only if the ledger still has the version that was read.
    """

    def get(self) -> StoredLedger:
        item = self._get(_LEDGER_KEY)
        if item is None:
            return StoredLedger()
        try:
            return StoredLedger(
                _CLAIMS_BY_CLUSTER_TYPE.validate_json(item["claims"]["S"]),
                float(item["at"]["N"]),
                int(item["version"]["N"]),
            )
        except (KeyError, ValueError, ValidationError) as error:
            raise GiveUp(
                f"the pools' ledger in table {self._table} cannot be read; delete the item pool#claims: {error}"
            ) from error

    def put(self, stored: StoredLedger) -> None:
        item: dict[str, Any] = {
            **_LEDGER_KEY,
            "claims": {
                "S": json.dumps(
                    {
                        cluster: claim.model_dump(mode="json", exclude_defaults=True)
                        for cluster, claim in stored.claims.items()
                    }
                )
            },
            "at": {"N": f"{stored.at:.3f}"},
            "version": {"N": str(stored.version + 1)},
            "wake": {"BOOL": False},
        }
        self._put(item, stored.version)


def _parse_reserved_instances(entry: ReservedInstancesTypeDef) -> Reserved:
    """Parse a purchase of Reserved Instances in EC2's response. The result for a regional purchase has no availability
    zone, even when the entry names a zone.
    """
    is_zonal = (
        entry.get("Scope", "Availability Zone" if "AvailabilityZone" in entry else "Region") == "Availability Zone"
    )
    return Reserved(
        id=entry["ReservedInstancesId"],
        instance_type=entry["InstanceType"],
        count=entry["InstanceCount"],
        zone=entry.get("AvailabilityZone") if is_zonal else None,
        platform=platform_of(entry.get("ProductDescription", LINUX)),
        tenancy=entry.get("InstanceTenancy", "default"),
        state=entry.get("State", "active"),
        end=entry["End"].timestamp(),
    )


def _parse_capacity_reservation(entry: CapacityReservationTypeDef) -> Capacity:
    end_time = entry.get("EndDate")
    reservation_type: str = entry.get("ReservationType", "default")
    return Capacity(
        id=entry["CapacityReservationId"],
        instance_type=entry["InstanceType"],
        zone=entry["AvailabilityZone"],
        total=entry["TotalInstanceCount"],
        available=min(entry["AvailableInstanceCount"], entry["TotalInstanceCount"]),
        platform=platform_of(entry.get("InstancePlatform", LINUX)),
        tenancy=entry.get("Tenancy", "default"),
        state=entry.get("State", "active"),
        targeted=entry.get("InstanceMatchCriteria", "open") == "targeted",
        block=reservation_type == "capacity-block",
        end=end_time.timestamp() if end_time is not None else None,
    )


def _parse_machine(instance: InstanceTypeDef) -> SeenMachine:
    placement: Mapping[str, Any] = instance.get("Placement", {})
    lifecycle: str = instance.get("InstanceLifecycle", "")
    platform = instance.get("PlatformDetails") or ("Windows" if instance.get("Platform") else LINUX)
    return SeenMachine(
        instance=instance["InstanceId"],
        instance_type=instance["InstanceType"],
        zone=placement.get("AvailabilityZone", ""),
        platform=platform,
        tenancy=placement.get("Tenancy") or "default",
        state=instance["State"]["Name"],
        lifecycle=cast(Literal["spot", "scheduled", "capacity-block"], lifecycle)
        if lifecycle in _SPECIAL_LIFECYCLES
        else "on-demand",
        capacity_reservation=instance.get("CapacityReservationId"),
        tags={tag["Key"]: tag.get("Value", "") for tag in instance.get("Tags", [])},
    )
