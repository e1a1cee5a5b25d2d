"""Read all pages of EC2's instance descriptions, and change instances in batches."""

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

VALUES_PER_FILTER = 200  # EC2's limit
INSTANCES_PER_BATCH = 500  # instances in one call
TEMPLATE_TAG = "aws:ec2launchtemplate:id"  # EC2 gives this tag to instances of a launch template
MAX_FAILED_CALLS = 8  # in a row; after these, refused batches are not halved
_INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,17}")
NOT_FOUND_CODES = ("InvalidInstanceID.NotFound", "InvalidID")  # EC2's error codes for unknown instances


class Ec2Instances:
    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def tagged(self, keys: Iterable[str]) -> Sequence[SeenInstance]:
        return self._describe("tag-key", keys)

    def of_templates(self, names: Iterable[str]) -> Mapping[str, Sequence[SeenInstance]]:
        """The instances launched from each launch template, by the template's name. EC2 itself tags each instance with
        the id of its launch template, and nobody can change this tag.
        """
        unique_names = sorted(set(names))
        template_names_by_id: dict[str, str] = {}
        with translated_errors("describing launch templates"):
            for start in range(0, len(unique_names), VALUES_PER_FILTER):
                filters: list[FilterTypeDef] = [
                    {"Name": "launch-template-name", "Values": unique_names[start : start + VALUES_PER_FILTER]}
                ]
                for page in self._clients.ec2().get_paginator("describe_launch_templates").paginate(Filters=filters):
                    template_names_by_id.update(
                        {entry["LaunchTemplateId"]: entry["LaunchTemplateName"] for entry in page["LaunchTemplates"]}
                    )
        instances_by_template: dict[str, list[SeenInstance]] = {}
        for instance in self._describe(f"tag:{TEMPLATE_TAG}", template_names_by_id):
            instances_by_template.setdefault(template_names_by_id[instance.tags[TEMPLATE_TAG]], []).append(instance)
        return instances_by_template

    def by_id(self, instances: Iterable[str]) -> Sequence[SeenInstance]:
        """Describe the instances by a filter on instance ids. A describe call with ids as arguments would fail for all
        instances if just one of the ids were (still) unknown to EC2.
        """
        return self._describe("instance-id", instances)

    def tag(self, instances: Sequence[str], key: str, value: str, until: float | None = None) -> Batch:
        def tag_batch(batch: Sequence[str]) -> None:
            with self._clients.requests_until(until):
                self._clients.ec2().create_tags(Resources=list(batch), Tags=[{"Key": key, "Value": value}])

        return self.call_in_batches(instances, tag_batch, f"tagging with {key}={value}")

    def terminate(self, instances: Sequence[str]) -> Batch:
        def terminate_batch(batch: Sequence[str]) -> None:
            self._clients.ec2().terminate_instances(InstanceIds=list(batch))

        return self.call_in_batches(instances, terminate_batch, "terminating")

    def untag(self, instances: Sequence[str], key: str) -> Batch:
        def untag_batch(batch: Sequence[str]) -> None:
            self._clients.ec2().delete_tags(Resources=list(batch), Tags=[{"Key": key}])

        return self.call_in_batches(instances, untag_batch, f"removing the tag {key}")

    def start(self, instances: Sequence[str]) -> Batch:
        def start_batch(batch: Sequence[str]) -> None:
            self._clients.ec2().start_instances(InstanceIds=list(batch))

        return self.call_in_batches(instances, start_batch, "starting")

    def stop(self, instances: Sequence[str]) -> Batch:
        def stop_batch(batch: Sequence[str]) -> None:
            self._clients.ec2().stop_instances(InstanceIds=list(batch))

        return self.call_in_batches(instances, stop_batch, "stopping")

    def reboot(self, instances: Sequence[str]) -> Batch:
        """Reboot the instances, which keep their IP addresses and volumes
        (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-reboot.html).
        """

        def reboot_batch(batch: Sequence[str]) -> None:
            self._clients.ec2().reboot_instances(InstanceIds=list(batch))

        return self.call_in_batches(instances, reboot_batch, "rebooting")

    def give_profile(self, instance: str, profile: str) -> None:
        """Set an instance's IAM instance profile, and replace its present profile if there is one
        (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/replace-iam-role.html).
        """
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

    def _describe(self, filter_name: str, values: Iterable[str]) -> list[SeenInstance]:
        unique_values = sorted(set(values))
        instances_by_id: dict[str, SeenInstance] = {}
        with translated_errors(f"describing instances by {filter_name}"):
            for start in range(0, len(unique_values), VALUES_PER_FILTER):
                filters: list[FilterTypeDef] = [
                    {"Name": filter_name, "Values": unique_values[start : start + VALUES_PER_FILTER]}
                ]
                for page in self._clients.ec2().get_paginator("describe_instances").paginate(Filters=filters):
                    for reservation in page["Reservations"]:
                        for instance in reservation.get("Instances", []):
                            instances_by_id[instance["InstanceId"]] = _seen_instance(instance)
        return list(instances_by_id.values())

    def call_in_batches(self, instances: Sequence[str], call: Callable[[Sequence[str]], None], operation: str) -> Batch:
        """Call `call` with batches of instances, and find the instances that EC2 refuses. If EC2 refuses a single
        instance, EC2 refuses the whole batch.

        If EC2's error names unknown instances, the batch is tried again without these instances. If the error names no
        instance, the batch is halved repeatedly to isolate the refused instances.
        """
        missing_ids: set[str] = set()
        refusals: dict[str, str] = {}
        instances = random.sample(
            list(instances), len(instances)
        )  # in random order, so that not always the same instances come last
        pending_batches = [
            list(instances[start : start + INSTANCES_PER_BATCH])
            for start in reversed(range(0, len(instances), INSTANCES_PER_BATCH))
        ]
        failed_calls = 0  # since the last success; without rights every call fails, so not all instances are tried
        while pending_batches:
            batch = pending_batches.pop()
            try:
                with translated_errors(f"{operation} {len(batch)} instances"):
                    call(batch)
                failed_calls = 0
            except Refused as error:
                unknown_ids = (
                    set(_INSTANCE_ID.findall(str(error))) & set(batch) if error.code in NOT_FOUND_CODES else set()
                )
                missing_ids |= unknown_ids
                if unknown_ids:
                    retry_batches = [[instance for instance in batch if instance not in unknown_ids]]
                elif len(batch) > 1 and failed_calls < MAX_FAILED_CALLS:
                    retry_batches = [batch[len(batch) // 2 :], batch[: len(batch) // 2]]
                elif error.code in NOT_FOUND_CODES:
                    missing_ids |= set(batch)
                    retry_batches = []
                else:
                    failed_calls += 1
                    refusals.update(dict.fromkeys(batch, str(error)))
                    retry_batches = []
                pending_batches += [retry_batch for retry_batch in retry_batches if retry_batch]
        return Batch(frozenset(missing_ids), refusals)


def _seen_instance(instance: InstanceTypeDef) -> SeenInstance:
    launch_time = instance.get("LaunchTime")
    return SeenInstance(
        instance=instance["InstanceId"],
        state=instance["State"]["Name"],
        tags={tag["Key"]: tag.get("Value", "") for tag in instance.get("Tags", [])},
        launched_at=launch_time.timestamp() if launch_time is not None else None,
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
