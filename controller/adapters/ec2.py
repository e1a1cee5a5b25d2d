"""EC2 instances: complete reads, and changes in batches."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dyntrain.controller.adapters.aws import Clients, translated_errors
from dyntrain.controller.contract.errors import Refused
from dyntrain.controller.core.records.facts import Market
from dyntrain.controller.loops.ports import Batch, SeenInstance

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

VALUES_PER_FILTER = 200
INSTANCES_PER_BATCH = 500
TEMPLATE_TAG = "aws:ec2launchtemplate:id"
MAX_FAILED_CALLS = 8
_ID = re.compile(r"i-[0-9a-f]{8,17}")
NOT_FOUND_CODES = ("InvalidInstanceID.NotFound", "InvalidID")


class Ec2Instances:
    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def tagged(self, keys: Iterable[str]) -> Sequence[SeenInstance]:
        return self._describe("tag-key", keys)

    def of_templates(self, names: Iterable[str]) -> Mapping[str, Sequence[SeenInstance]]:
        """Instances by the name of their launch template. EC2 itself tags each launched instance with the template's
        id, and nobody can change this tag.
        """
        unique_names = sorted(set(names))
        template_names: dict[str, str] = {}
        with translated_errors("describing launch templates"):
            for start in range(0, len(unique_names), VALUES_PER_FILTER):
                filters: list[FilterTypeDef] = [
                    {"Name": "launch-template-name", "Values": unique_names[start : start + VALUES_PER_FILTER]}
                ]
                for page in self._clients.ec2().get_paginator("describe_launch_templates").paginate(Filters=filters):
                    template_names.update(
                        {entry["LaunchTemplateId"]: entry["LaunchTemplateName"] for entry in page["LaunchTemplates"]}
                    )
        by_template: dict[str, list[SeenInstance]] = {}
        for instance in self._describe(f"tag:{TEMPLATE_TAG}", template_names):
            by_template.setdefault(template_names[instance.tags[TEMPLATE_TAG]], []).append(instance)
        return by_template

    def by_id(self, instances: Iterable[str]) -> Sequence[SeenInstance]:
        """Instances by a filter on ids. A call with ids as arguments would fail as a whole for one id that EC2 does not
        show (yet).
        """
        return self._describe("instance-id", instances)

    def tag(self, instances: Sequence[str], key: str, value: str, until: float | None = None) -> Batch:
        def call(batch: Sequence[str]) -> None:
            with self._clients.requests_until(until):
                self._clients.ec2().create_tags(Resources=list(batch), Tags=[{"Key": key, "Value": value}])

        return self.each_batch(instances, call, f"tagging with {key}={value}")

    def terminate(self, instances: Sequence[str]) -> Batch:
        def call(batch: Sequence[str]) -> None:
            self._clients.ec2().terminate_instances(InstanceIds=list(batch))

        return self.each_batch(instances, call, "terminating")

    def untag(self, instances: Sequence[str], key: str) -> Batch:
        def call(batch: Sequence[str]) -> None:
            self._clients.ec2().delete_tags(Resources=list(batch), Tags=[{"Key": key}])

        return self.each_batch(instances, call, f"removing the tag {key}")

    def start(self, instances: Sequence[str]) -> Batch:
        def call(batch: Sequence[str]) -> None:
            self._clients.ec2().start_instances(InstanceIds=list(batch))

        return self.each_batch(instances, call, "starting")

    def stop(self, instances: Sequence[str]) -> Batch:
        def call(batch: Sequence[str]) -> None:
            self._clients.ec2().stop_instances(InstanceIds=list(batch))

        return self.each_batch(instances, call, "stopping")

    def reboot(self, instances: Sequence[str]) -> Batch:
        """Reboot the instances (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-reboot.html)."""

        def call(batch: Sequence[str]) -> None:
            self._clients.ec2().reboot_instances(InstanceIds=list(batch))

        return self.each_batch(instances, call, "rebooting")

    def give_profile(self, instance: str, profile: str) -> None:
        """Set the instance profile (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/replace-iam-role.html)."""
        ec2 = self._clients.ec2()
        with translated_errors(f"giving {instance} the instance profile {profile}"):
            associations = ec2.describe_iam_instance_profile_associations(
                Filters=[
                    {"Name": "instance-id", "Values": [instance]},
                    {"Name": "state", "Values": ["associating", "associated"]},
                ]
            )["IamInstanceProfileAssociations"]
            if associations:
                ec2.replace_iam_instance_profile_association(
                    AssociationId=associations[0]["AssociationId"], IamInstanceProfile={"Arn": profile}
                )
            else:
                ec2.associate_iam_instance_profile(InstanceId=instance, IamInstanceProfile={"Arn": profile})

    def _describe(self, name: str, values: Iterable[str]) -> list[SeenInstance]:
        unique_values = sorted(set(values))
        by_id: dict[str, SeenInstance] = {}
        with translated_errors(f"describing instances by {name}"):
            for start in range(0, len(unique_values), VALUES_PER_FILTER):
                filters: list[FilterTypeDef] = [
                    {"Name": name, "Values": unique_values[start : start + VALUES_PER_FILTER]}
                ]
                for page in self._clients.ec2().get_paginator("describe_instances").paginate(Filters=filters):
                    for reservation in page["Reservations"]:
                        for instance in reservation.get("Instances", []):
                            by_id[instance["InstanceId"]] = _seen_instance(instance)
        return list(by_id.values())

    def each_batch(self, instances: Sequence[str], call: Callable[[Sequence[str]], None], operation: str) -> Batch:
        """Call in batches, and find the instances that EC2 refuses. EC2 refuses a whole batch because of one instance.

        The instances that the error names are left out, and the other instances are tried again. If the error names no
        instance, the batch is halved until the refused instances are alone.
        """
        missing: set[str] = set()
        refused: dict[str, str] = {}
        instances = random.sample(
            list(instances), len(instances)
        )  # in random order, so that not always the same instances come last
        pending = [
            list(instances[start : start + INSTANCES_PER_BATCH])
            for start in reversed(range(0, len(instances), INSTANCES_PER_BATCH))
        ]
        failed_calls = 0  # since the last success; without rights every call fails, so not all instances are tried
        while pending:
            batch = pending.pop()
            try:
                with translated_errors(f"{operation} {len(batch)} instances"):
                    call(batch)
                failed_calls = 0
            except Refused as error:
                unknown = set(_ID.findall(str(error))) & set(batch) if error.code in NOT_FOUND_CODES else set()
                missing |= unknown
                if unknown:
                    batches = [[instance for instance in batch if instance not in unknown]]
                elif len(batch) > 1 and failed_calls < MAX_FAILED_CALLS:
                    batches = [batch[len(batch) // 2 :], batch[: len(batch) // 2]]
                elif error.code in NOT_FOUND_CODES:
                    missing |= set(batch)
                    batches = []
                else:
                    failed_calls += 1
                    refused.update(dict.fromkeys(batch, str(error)))
                    batches = []
                pending += [part for part in batches if part]
        return Batch(frozenset(missing), refused)


def _seen_instance(instance: InstanceTypeDef) -> SeenInstance:
    launched = instance.get("LaunchTime")
    return SeenInstance(
        instance=instance["InstanceId"],
        state=instance["State"]["Name"],
        tags={tag["Key"]: tag.get("Value", "") for tag in instance.get("Tags", [])},
        launched_at=launched.timestamp() if launched is not None else None,
        private_ip=instance.get("PrivateIpAddress"),
        profile=instance.get("IamInstanceProfile", {}).get("Arn"),
        type=instance.get("InstanceType", ""),
        market=_market(instance),
    )


def _market(instance: InstanceTypeDef) -> Market:
    lifecycle: str = instance.get("InstanceLifecycle", "")  # absent for on-demand instances
    if lifecycle == "spot":
        return "spot"
    if lifecycle == "capacity-block":
        return "capacity-block"
    return "reserved" if instance.get("CapacityReservationId") else "on-demand"
