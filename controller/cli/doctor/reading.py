"""Read from AWS the state that the doctor judges. A failed reading becomes an `Unread` and stops no other reading.
After a deadline nothing more is read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.session import Session
from dyntrain.controller.adapters.aws import creating_client, error_code, translated_errors
from dyntrain.controller.adapters.ssm import PARAMETERS_PATH
from dyntrain.controller.cli.doctor.observations import (
    ClusterSeen,
    GroupSeen,
    ImageSeen,
    Readings,
    Right,
    StackSeen,
    TemplateSeen,
    Unread,
)
from dyntrain.controller.contract.errors import ControllerError, GiveUp, Misconfigured, RetryLater
from dyntrain.controller.contract.messages import (
    COORDINATOR_SOURCE,
    NODE_SOURCE,
    ClusterPolicy,
    launch_template_name,
    parameter,
    source_of,
)
from dyntrain.controller.contract.stage import STAGES, Stage, chosen_stage, stage_parameter
from pydantic import ValidationError

DEADLINE_SECONDS = 30.0  # afterwards no reading starts; the last call may take another 26 s
_CONFIG = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2})
_ROLE = re.compile(r"arn:([\w-]+):sts::(\d+):assumed-role/([^/]+)/.*")
_LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
_TABLE_PATTERN = "-FactsTable-*"
_ALARM_TYPE = "AWS::CloudWatch::Alarm"
_ALARMS_PER_CALL = 100  # alarm names in one call
_CALLS = (
    Right("ssm:GetParametersByPath"),
    Right("ssm:GetParameter"),
    Right("dynamodb:BatchGetItem"),
    Right("dynamodb:GetItem"),
    Right("dynamodb:Query"),
    Right("ec2:DescribeInstances"),
    Right("autoscaling:DescribeAutoScalingGroups"),
)
T = TypeVar("T")


class Reader:
    """Read the doctor's readings. `clock`: seconds from any start. `doing`: called with a text before each reading.
    `wanted_stage` None: the only deployed stage.
    """

    def __init__(
        self,
        wanted_stage: str | None,
        clock: Callable[[], float] = time.monotonic,
        doing: Callable[[str], None] = lambda _what: None,
    ) -> None:
        self._doing = doing
        self._session, self._wanted = Session(), wanted_stage
        self._clock, self._until = clock, clock() + DEADLINE_SECONDS

    def read(self, only_cluster: str | None) -> Readings:
        """Read the controller and all clusters; with `only_cluster`, read only that cluster."""
        stages = self._read_or_unread("the stages", lambda: self._parameters_below(STAGES))
        stage = self._chosen_stage(stages)
        caller = self._read_or_unread("who you are", lambda: str(self._client("sts").get_caller_identity()["Arn"]))
        name = self._controllers_stack(stages, stage)
        stack = (
            self._read_or_unread("the controller's stack", lambda: self._stack(name))
            if name
            else Unread("the stage's parameters do not name its stack")
        )
        return Readings(
            region=self._region(),
            caller=caller,
            stages=stages,
            wanted_stage=self._wanted,
            stack=stack,
            table=self._read_or_unread("the table", lambda: self._table(stage.table))
            if stage
            else Unread("there is no stage"),
            alarms=self._read_or_unread("the alarms", lambda: self._alarms(stack.alarms))
            if isinstance(stack, StackSeen)
            else Unread("the controller's stack was not found"),
            denied=self._denied_to(caller, _CALLS),
            clusters=self._read_or_unread("the clusters", lambda: self._clusters(only_cluster, stage)),
        )

    def _client(self, service: str) -> Any:
        with creating_client():
            client = self._session.create_client(service, config=_CONFIG)
        client.meta.events.register(  # checks the deadline before each page of a listing
            "before-call", self._check_deadline
        )
        return client

    def _read_or_unread(self, subject: str, read: Callable[[], T]) -> T | Unread:
        try:
            self._check_deadline()
            self._doing(f"reading {subject}")
            with translated_errors(f"reading {subject}"):
                return read()
        except ControllerError as error:
            return Unread(" ".join(str(error).split()))

    def _check_deadline(self, **_call: Any) -> None:
        if self._clock() > self._until:
            raise RetryLater(f"not read within the {DEADLINE_SECONDS:.0f} s for all readings")

    def _region(self) -> str | Unread:
        region = self._session.get_config_variable("region")
        return str(region) if region else Unread("none is set: export AWS_DEFAULT_REGION or configure a profile")

    def _chosen_stage(self, stages: Mapping[str, str] | Unread) -> Stage | None:
        try:
            return None if isinstance(stages, Unread) else chosen_stage(stages, self._wanted)
        except Misconfigured:
            return None

    # ---- the controller

    def _controllers_stack(self, stages: Mapping[str, str] | Unread, stage: Stage | None) -> str:
        if isinstance(stages, Unread) or stage is None or stage.name is None:
            return ""
        tables = stages.get(stage_parameter(stage.name, "tables"), "")
        return tables.removesuffix(_TABLE_PATTERN) if tables.endswith(_TABLE_PATTERN) else ""

    def _stack(self, name: str) -> StackSeen | None:
        cloudformation = self._client("cloudformation")
        try:
            stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        except ClientError as error:
            if error_code(error) == "ValidationError" and "does not exist" in str(error):
                return None
            raise
        pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=name)
        resources = [resource for page in pages for resource in page["StackResourceSummaries"]]
        return StackSeen(
            stack["StackStatus"],
            {entry["ParameterKey"]: entry.get("ParameterValue", "") for entry in stack.get("Parameters", ())},
            {
                resource["LogicalResourceId"]: resource.get("ResourceStatusReason", resource["ResourceStatus"])
                for resource in resources
                if resource["ResourceStatus"].endswith("FAILED")
            },
            {resource["LogicalResourceId"]: resource.get("PhysicalResourceId", "") for resource in resources},
            tuple(resource["PhysicalResourceId"] for resource in resources if resource["ResourceType"] == _ALARM_TYPE),
        )

    def _table(self, name: str) -> str | None:
        try:
            return str(self._client("dynamodb").describe_table(TableName=name)["Table"]["TableStatus"])
        except ClientError as error:
            if error_code(error) == "ResourceNotFoundException":
                return None
            raise

    def _alarms(self, names: Sequence[str]) -> dict[str, str]:
        """Descriptions of the raised alarms, by alarm name."""
        cloudwatch = self._client("cloudwatch")
        parts = [names[start : start + _ALARMS_PER_CALL] for start in range(0, len(names), _ALARMS_PER_CALL)]
        answers = [
            cloudwatch.describe_alarms(AlarmNames=part, StateValue="ALARM", MaxRecords=_ALARMS_PER_CALL)
            for part in parts
        ]
        alarms = [alarm for answer in answers for alarm in answer.get("MetricAlarms", ())]
        return {alarm["AlarmName"]: alarm.get("AlarmDescription", "") for alarm in alarms}

    # ---- clusters

    def _parameters_below(self, path: str) -> dict[str, str]:
        pages = self._client("ssm").get_paginator("get_parameters_by_path").paginate(Path=path, Recursive=True)
        return {entry["Name"]: entry["Value"] for page in pages for entry in page["Parameters"]}

    def _clusters(self, only_cluster: str | None, stage: Stage | None) -> dict[str, ClusterSeen]:
        """Read all clusters with a policy; with `only_cluster`, read only that cluster."""
        parameters = self._read_or_unread(
            "the parameters",
            lambda: self._parameters_below(f"{PARAMETERS_PATH}{only_cluster}/" if only_cluster else PARAMETERS_PATH),
        )
        groups = self._read_or_unread("the groups", self._groups)
        if only_cluster is not None:
            return {only_cluster: self._cluster(only_cluster, parameters, groups, stage)}
        if isinstance(parameters, Unread):
            raise GiveUp(parameters.why)
        names = sorted(
            name.split("/")[2] for name in parameters if re.fullmatch(rf"{PARAMETERS_PATH}[^/-][^/]*/policy", name)
        )
        return {name: self._cluster(name, parameters, groups, stage) for name in names}

    def _cluster(
        self,
        name: str,
        parameters: Mapping[str, str] | Unread,
        groups: Mapping[str, Mapping[str, Any]] | Unread,
        stage: Stage | None,
    ) -> ClusterSeen:
        """Read one cluster. `held`: parameters by name; `groups`: all groups of the account."""
        stack = self._read_or_unread(f"the stack {name}", lambda: self._stack(name))
        template = self._read_or_unread("the launch template", lambda: self._template(launch_template_name(name)))
        image = template.image if isinstance(template, TemplateSeen) else ""
        source = stack.parameters.get("PackageSource", "") if isinstance(stack, StackSeen) else ""
        path = f"{PARAMETERS_PATH}{name}/"
        own_parameters: Mapping[str, str] | Unread = parameters
        if not isinstance(parameters, Unread):
            own_parameters = {
                key.removeprefix(path): value for key, value in parameters.items() if key.startswith(path)
            }
        return ClusterSeen(
            own_parameters,
            stack,
            self._read_or_unread(f"the groups of {name}", lambda: self._own_groups(own_parameters, groups)),
            template,
            self._read_or_unread("the image", lambda: self._image(image))
            if image
            else Unread("the launch template was not read"),
            self._read_or_unread("the wheel", lambda: self._wheel(source)),
            self._nodes_denied(name, stack, stage),
        )

    def _groups(self) -> dict[str, Mapping[str, Any]]:
        """All Auto Scaling groups of the account, by name, as AWS describes them."""
        pages = self._client("autoscaling").get_paginator("describe_auto_scaling_groups").paginate()
        return {group["AutoScalingGroupName"]: group for page in pages for group in page["AutoScalingGroups"]}

    def _own_groups(
        self, parameters: Mapping[str, str] | Unread, groups: Mapping[str, Mapping[str, Any]] | Unread
    ) -> dict[str, GroupSeen]:
        """The existing groups that the cluster's policy names."""
        if isinstance(parameters, Unread):
            raise GiveUp(parameters.why)
        if isinstance(groups, Unread):
            raise GiveUp(groups.why)
        try:
            named = ClusterPolicy.model_validate_json(parameters.get("policy", "{}")).groups
        except ValidationError:
            return {}
        return {name: self._group(groups[name]) for name in named if name in groups}

    def _group(self, group: Mapping[str, Any]) -> GroupSeen:
        name = group["AutoScalingGroupName"]
        hooks = self._client("autoscaling").describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
        serving = sum(instance["LifecycleState"] == "InService" for instance in group.get("Instances", ()))
        sizes = (group["MinSize"], group["MaxSize"], group["DesiredCapacity"], serving)
        tags = {tag["Key"]: tag["Value"] for tag in group.get("Tags", ())}
        template = group.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
        typed_entries = (*group.get("Instances", ()), *template.get("Overrides", ()))
        types = frozenset(entry["InstanceType"] for entry in typed_entries if entry.get("InstanceType"))
        abandons = any(
            hook["LifecycleTransition"] == _LAUNCHING and hook["DefaultResult"] == "ABANDON" for hook in hooks
        )
        handed_on = frozenset(tag["Key"] for tag in group.get("Tags", ()) if tag.get("PropagateAtLaunch"))
        transitions = frozenset(hook["LifecycleTransition"] for hook in hooks)
        return GroupSeen(*sizes, tags, transitions, types, abandons, handed_on)

    def _template(self, name: str) -> TemplateSeen | None:
        try:
            versions = self._client("ec2").describe_launch_template_versions(
                LaunchTemplateName=name, Versions=["$Default"]
            )["LaunchTemplateVersions"]
        except ClientError as error:
            if error_code(error) == "InvalidLaunchTemplateName.NotFoundException":
                return None
            raise
        data = versions[0]["LaunchTemplateData"]
        tags = {
            tag["Key"]: tag.get("Value", "")
            for specification in data.get("TagSpecifications", ())
            if specification["ResourceType"] == "instance"
            for tag in specification["Tags"]
        }
        return TemplateSeen(tags, data.get("ImageId", ""), _volumes(data))

    def _image(self, image: str) -> ImageSeen | None:
        """Read the image by a filter, because a call by id fails for a deleted image."""
        images = self._client("ec2").describe_images(Filters=[{"Name": "image-id", "Values": [image]}])["Images"]
        return ImageSeen(str(images[0]["State"]), _volumes(images[0])) if images else None

    def _wheel(self, source: str) -> bool | None:
        if not source.startswith("s3://"):
            return None
        bucket, _, key = source.removeprefix("s3://").partition("/")
        try:
            answer = self._client("s3").list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
        except ClientError as error:
            if error_code(error) == "NoSuchBucket":
                return False
            raise
        return any(entry["Key"] == key for entry in answer.get("Contents", ()))

    # ---- rights

    def _nodes_denied(
        self, cluster: str, stack: StackSeen | Unread | None, stage: Stage | None
    ) -> tuple[str, ...] | Unread:
        resources = stack.resources if isinstance(stack, StackSeen) else {}
        if "NodeRole" not in resources or stage is None:
            return Unread("the cluster's stack does not name its nodes' role")
        denied: list[str] = []
        for role, rights in (("NodeRole", _rights_of_base), ("WorkerRole", _rights_of_all)):
            if role not in resources:
                continue  # a cluster without added workers
            arn = self._role(resources[role])
            if isinstance(arn, Unread):
                return arn
            region_and_account = f"{self._region()}:{arn.split(':')[4]}"
            denied_to_role = self._denied(arn, rights(arn.split(":")[1], region_and_account, cluster, stage))
            if isinstance(denied_to_role, Unread):
                return denied_to_role
            denied += denied_to_role
        return tuple(dict.fromkeys(denied))

    def _role(self, name: str) -> str | Unread:
        return self._read_or_unread(
            f"the role {name}", lambda: str(self._client("iam").get_role(RoleName=name)["Role"]["Arn"])
        )

    def _denied_to(self, caller: str | Unread, rights: Iterable[Right]) -> tuple[str, ...] | Unread:
        if isinstance(caller, Unread):
            return caller
        if caller.endswith(":root"):
            return ()
        role_match = _ROLE.fullmatch(caller)
        if role_match is None:
            return self._denied(caller, rights)
        role = self._role(role_match[3])
        return role if isinstance(role, Unread) else self._denied(role, rights)

    def _denied(self, principal: str, rights: Iterable[Right]) -> tuple[str, ...] | Unread:
        def denied_rights() -> tuple[str, ...]:
            iam = self._client("iam")
            return tuple(
                f"{right.action} on {right.resource}" for right in rights if not _allowed(iam, principal, right)
            )

        return self._read_or_unread("IAM's simulation", denied_rights)


def _volumes(description: Mapping[str, Any]) -> dict[str, int]:
    """Volume sizes in GiB by device, from AWS's description of an image or a launch template."""
    return {
        device["DeviceName"]: int(device["Ebs"]["VolumeSize"])
        for device in description.get("BlockDeviceMappings", ())
        if "VolumeSize" in device.get("Ebs", {})
    }


def _rights_of_all(partition: str, region_and_account: str, cluster: str, _stage: Stage) -> tuple[Right, ...]:
    names = [parameter(cluster, "node"), parameter(cluster, "target"), parameter(cluster, "coordinator")]
    return (
        *(Right("ssm:GetParameter", f"arn:{partition}:ssm:{region_and_account}:parameter{name}") for name in names),
        _event_right(partition, region_and_account, source_of(NODE_SOURCE, cluster)),
    )


def _rights_of_base(partition: str, region_and_account: str, cluster: str, stage: Stage) -> tuple[Right, ...]:
    """The rights of base nodes: the rights of all nodes, and rights for running the coordinator."""
    names = (stage_parameter(str(stage.name), "table"), parameter(cluster, "coordinator"))
    table, published = (f"arn:{partition}:ssm:{region_and_account}:parameter{name}" for name in names)
    of_cluster = {"dynamodb:LeadingKeys": f"cluster#{cluster}"}
    return (
        *_rights_of_all(partition, region_and_account, cluster, stage),
        Right("ssm:GetParameter", table),
        Right("ssm:PutParameter", published),
        Right("dynamodb:GetItem", f"arn:{partition}:dynamodb:{region_and_account}:table/{stage.table}", of_cluster),
        _event_right(partition, region_and_account, source_of(COORDINATOR_SOURCE, cluster)),
    )


def _event_right(partition: str, region_and_account: str, source: str) -> Right:
    return Right(
        "events:PutEvents", f"arn:{partition}:events:{region_and_account}:event-bus/default", {"events:source": source}
    )


def _allowed(iam: Any, principal: str, right: Right) -> bool:
    context = [
        {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "stringList"}
        for key, value in right.context.items()
    ]
    answer = iam.simulate_principal_policy(
        PolicySourceArn=principal, ActionNames=[right.action], ResourceArns=[right.resource], ContextEntries=context
    )
    return all(result["EvalDecision"] == "allowed" for result in answer["EvaluationResults"])
