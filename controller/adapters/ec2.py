"""EC2 instances: reads of everything at once, tags and terminations in batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from controller.adapters.aws import Clients, error_code, translated
from controller.errors import RetryLater
from controller.ports import SeenInstance

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

FILTER_VALUES = 200
BATCH = 500
TEMPLATE_TAG = "aws:ec2launchtemplate:id"
_ID = re.compile(r"i-[0-9a-f]{8,17}")


class Ec2Instances:
    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def tagged(self, keys: Iterable[str]) -> Sequence[SeenInstance]:
        return self._described("tag-key", keys)

    def of_templates(self, names: Iterable[str]) -> Mapping[str, Sequence[SeenInstance]]:
        """By the tag that EC2 itself sets at the launch and that nobody can change: it names the template's id."""
        wanted = sorted(set(names))
        template_names: dict[str, str] = {}
        with translated("describing launch templates"):
            for start in range(0, len(wanted), FILTER_VALUES):
                filters: list[FilterTypeDef] = [{"Name": "launch-template-name", "Values": wanted[start : start + FILTER_VALUES]}]
                for page in self._clients.ec2().get_paginator("describe_launch_templates").paginate(Filters=filters):
                    template_names.update({entry["LaunchTemplateId"]: entry["LaunchTemplateName"] for entry in page["LaunchTemplates"]})
        found: dict[str, list[SeenInstance]] = {}
        for instance in self._described(f"tag:{TEMPLATE_TAG}", template_names):
            found.setdefault(template_names[instance.tags[TEMPLATE_TAG]], []).append(instance)
        return found

    def by_id(self, instances: Iterable[str]) -> Sequence[SeenInstance]:
        """By a filter: asking by id would fail as a whole for one that EC2 does not show (yet)."""
        return self._described("instance-id", instances)

    def tag(self, instances: Sequence[str], key: str, value: str) -> Sequence[str]:
        def call(batch: Sequence[str]) -> None:
            self._clients.ec2().create_tags(Resources=list(batch), Tags=[{"Key": key, "Value": value}])

        return self.each_batch(instances, call, f"tagging with {key}={value}")

    def terminate(self, instances: Sequence[str]) -> Sequence[str]:
        def call(batch: Sequence[str]) -> None:
            self._clients.ec2().terminate_instances(InstanceIds=list(batch))

        return self.each_batch(instances, call, "terminating")

    def _described(self, name: str, values: Iterable[str]) -> list[SeenInstance]:
        wanted = sorted(set(values))
        found: dict[str, SeenInstance] = {}
        with translated(f"describing instances by {name}"):
            for start in range(0, len(wanted), FILTER_VALUES):
                filters: list[FilterTypeDef] = [{"Name": name, "Values": wanted[start : start + FILTER_VALUES]}]
                for page in self._clients.ec2().get_paginator("describe_instances").paginate(Filters=filters):
                    for reservation in page["Reservations"]:
                        for instance in reservation.get("Instances", []):
                            found[instance["InstanceId"]] = _seen(instance)
        return list(found.values())

    def each_batch(self, instances: Sequence[str], call: Callable[[Sequence[str]], None], doing: str) -> list[str]:
        """EC2 refuses a whole batch for one unknown id: those it names are set aside and the rest is asked again."""
        missing: list[str] = []
        for start in range(0, len(instances), BATCH):
            batch = list(instances[start : start + BATCH])
            while batch:
                with translated(f"{doing} {len(batch)} instances from {batch[0]} on"):
                    try:
                        call(batch)
                        break
                    except ClientError as error:
                        if error_code(error) not in ("InvalidInstanceID.NotFound", "InvalidID"):
                            raise
                        unknown = set(_ID.findall(str(error))) & set(batch)
                if not unknown:
                    raise RetryLater(f"{doing}: EC2 does not know one of {', '.join(batch[:5])}, and does not say which")
                missing.extend(sorted(unknown))
                batch = [instance for instance in batch if instance not in unknown]
        return missing


def _seen(instance: InstanceTypeDef) -> SeenInstance:
    launched = instance.get("LaunchTime")
    return SeenInstance(
        instance=instance["InstanceId"],
        state=instance["State"]["Name"],
        tags={tag["Key"]: tag.get("Value", "") for tag in instance.get("Tags", [])},
        launched_at=launched.timestamp() if launched is not None else None,
        private_ip=instance.get("PrivateIpAddress"),
    )
