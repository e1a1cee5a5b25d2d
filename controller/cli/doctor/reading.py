"""Read from AWS the state that `dyntrain doctor` judges. A failed reading becomes an `Unread`, and does not prevent
other readings. After DEADLINE_SECONDS no new reading starts.
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
_CLIENT_CONFIG = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2})
_ASSUMED_ROLE_ARN = re.compile(r"arn:([\w-]+):sts::(\d+):assumed-role/([^/]+)/.*")
_LAUNCH_TRANSITION = "autoscaling:EC2_INSTANCE_LAUNCHING"
_TABLE_PATTERN = "-FactsTable-*"  # end of the pattern of a stage's table names, after the stack's name
_ALARM_TYPE = "AWS::CloudWatch::Alarm"
_ALARMS_PER_CALL = 100  # alarm names in one call
_COMMAND_RIGHTS = (  # permissions that the commands need
    Right("ssm:GetParametersByPath"),
    Right("ssm:GetParameter"),
    Right("dynamodb:BatchGetItem"),
    Right("dynamodb:GetItem"),
    Right("dynamodb:Query"),
    Right("ec2:DescribeInstances"),
    Right("autoscaling:DescribeAutoScalingGroups"),
)
T = TypeVar("T")


class Reader:  # of the state that the doctor judges
    """Read from AWS the state that `dyntrain doctor` judges. `doing` is called with a progress message before each
    reading. If `wanted_stage` is None, the only deployed stage is read.
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
        """Read the state of the controller and of all clusters, or of one cluster if `only_cluster` is given."""
        stage_parameters = self._read_or_unread("the stages", lambda: self._parameters_below(STAGES))
        stage = self._chosen_stage(stage_parameters)
        caller = self._read_or_unread("who you are", lambda: str(self._aws_client("sts").get_caller_identity()["Arn"]))
        stack_name = self._controller_stack_name(stage_parameters, stage)
        stack = (
            self._read_or_unread("the controller's stack", lambda: self._read_stack(stack_name))
            if stack_name
            else Unread("the stage's parameters do not name its stack")
        )
        return Readings(
            region=self._configured_region(),
            caller=caller,
            stages=stage_parameters,
            wanted_stage=self._wanted,
            stack=stack,
            table=self._read_or_unread("the table", lambda: self._read_table_status(stage.table))
            if stage
            else Unread("there is no stage"),
            alarms=self._read_or_unread("the alarms", lambda: self._read_alarms(stack.alarms))
            if isinstance(stack, StackSeen)
            else Unread("the controller's stack was not found"),
            denied=self._denied_caller_rights(caller, _COMMAND_RIGHTS),
            clusters=self._read_or_unread("the clusters", lambda: self._read_clusters(only_cluster, stage)),
        )

    def _aws_client(self, service: str) -> Any:
        with creating_client():
            client = self._session.create_client(service, config=_CLIENT_CONFIG)
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

    def _configured_region(self) -> str | Unread:
        region = self._session.get_config_variable("region")
        return str(region) if region else Unread("none is set: export AWS_DEFAULT_REGION or configure a profile")

    def _chosen_stage(self, stages: Mapping[str, str] | Unread) -> Stage | None:
        try:
            return None if isinstance(stages, Unread) else chosen_stage(stages, self._wanted)
        except Misconfigured:
            return None

    # ---- the controller

    def _controller_stack_name(self, stages: Mapping[str, str] | Unread, stage: Stage | None) -> str:
        if isinstance(stages, Unread) or stage is None or stage.name is None:
            return ""
        tables_pattern = stages.get(stage_parameter(stage.name, "tables"), "")
        return tables_pattern.removesuffix(_TABLE_PATTERN) if tables_pattern.endswith(_TABLE_PATTERN) else ""

    def _read_stack(self, name: str) -> StackSeen | None:
        cloudformation = self._aws_client("cloudformation")
        try:
            stack_data = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        except ClientError as error:
            if error_code(error) == "ValidationError" and "does not exist" in str(error):
                return None
            raise
        pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=name)
        resources = [resource for page in pages for resource in page["StackResourceSummaries"]]
        return StackSeen(
            stack_data["StackStatus"],
            {entry["ParameterKey"]: entry.get("ParameterValue", "") for entry in stack_data.get("Parameters", ())},
            {
                resource["LogicalResourceId"]: resource.get("ResourceStatusReason", resource["ResourceStatus"])
                for resource in resources
                if resource["ResourceStatus"].endswith("FAILED")
            },
            {resource["LogicalResourceId"]: resource.get("PhysicalResourceId", "") for resource in resources},
            tuple(resource["PhysicalResourceId"] for resource in resources if resource["ResourceType"] == _ALARM_TYPE),
        )

    def _read_table_status(self, name: str) -> str | None:
        try:
            return str(self._aws_client("dynamodb").describe_table(TableName=name)["Table"]["TableStatus"])
        except ClientError as error:
            if error_code(error) == "ResourceNotFoundException":
                return None
            raise

    def _read_alarms(self, names: Sequence[str]) -> dict[str, str]:
        """The descriptions of the raised CloudWatch alarms among `names`, by alarm name."""
        cloudwatch = self._aws_client("cloudwatch")
        name_batches = [names[start : start + _ALARMS_PER_CALL] for start in range(0, len(names), _ALARMS_PER_CALL)]
        responses = [
            cloudwatch.describe_alarms(AlarmNames=name_batch, StateValue="ALARM", MaxRecords=_ALARMS_PER_CALL)
            for name_batch in name_batches
        ]
        alarms = [alarm for response in responses for alarm in response.get("MetricAlarms", ())]
        return {alarm["AlarmName"]: alarm.get("AlarmDescription", "") for alarm in alarms}

    # ---- clusters

    def _parameters_below(self, path: str) -> dict[str, str]:
        pages = self._aws_client("ssm").get_paginator("get_parameters_by_path").paginate(Path=path, Recursive=True)
        return {entry["Name"]: entry["Value"] for page in pages for entry in page["Parameters"]}

    def _read_clusters(self, only_cluster: str | None, stage: Stage | None) -> dict[str, ClusterSeen]:
        """Read the state of all clusters with a policy, or of one cluster if `only_cluster` is given."""
        parameters = self._read_or_unread(
            "the parameters",
            lambda: self._parameters_below(f"{PARAMETERS_PATH}{only_cluster}/" if only_cluster else PARAMETERS_PATH),
        )
        groups = self._read_or_unread("the groups", self._read_groups)
        if only_cluster is not None:
            return {only_cluster: self._read_cluster(only_cluster, parameters, groups, stage)}
        if isinstance(parameters, Unread):
            raise GiveUp(parameters.why)
        cluster_names = sorted(
            parameter_name.split("/")[2]
            for parameter_name in parameters
            if re.fullmatch(rf"{PARAMETERS_PATH}[^/-][^/]*/policy", parameter_name)
        )
        return {
            cluster_name: self._read_cluster(cluster_name, parameters, groups, stage) for cluster_name in cluster_names
        }

    def _read_cluster(
        self,
        name: str,
        parameters: Mapping[str, str] | Unread,
        groups: Mapping[str, Mapping[str, Any]] | Unread,
        stage: Stage | None,
    ) -> ClusterSeen:
        """Read the state of one cluster, given the parameters by name and the AWS account's Auto Scaling groups."""
        stack = self._read_or_unread(f"the stack {name}", lambda: self._read_stack(name))
        template = self._read_or_unread("the launch template", lambda: self._read_template(launch_template_name(name)))
        image_id = template.image if isinstance(template, TemplateSeen) else ""
        package_source = stack.parameters.get("PackageSource", "") if isinstance(stack, StackSeen) else ""
        parameter_path = f"{PARAMETERS_PATH}{name}/"
        cluster_parameters: Mapping[str, str] | Unread = parameters
        if not isinstance(parameters, Unread):
            cluster_parameters = {
                name.removeprefix(parameter_path): text
                for name, text in parameters.items()
                if name.startswith(parameter_path)
            }
        return ClusterSeen(
            cluster_parameters,
            stack,
            self._read_or_unread(f"the groups of {name}", lambda: self._groups_of_cluster(cluster_parameters, groups)),
            template,
            self._read_or_unread("the image", lambda: self._read_image(image_id))
            if image_id
            else Unread("the launch template was not read"),
            self._read_or_unread("the wheel", lambda: self._wheel_exists(package_source)),
            self._denied_node_rights(name, stack, stage),
        )

    def _read_groups(self) -> dict[str, Mapping[str, Any]]:
        """All Auto Scaling groups of the AWS account, by name, as AWS describes them."""
        group_pages = self._aws_client("autoscaling").get_paginator("describe_auto_scaling_groups").paginate()
        return {group["AutoScalingGroupName"]: group for page in group_pages for group in page["AutoScalingGroups"]}

    def _groups_of_cluster(
        self, parameters: Mapping[str, str] | Unread, groups: Mapping[str, Mapping[str, Any]] | Unread
    ) -> dict[str, GroupSeen]:
        """The existing Auto Scaling groups that the policy in the cluster's parameters names."""
        if isinstance(parameters, Unread):
            raise GiveUp(parameters.why)
        if isinstance(groups, Unread):
            raise GiveUp(groups.why)
        try:
            group_names = ClusterPolicy.model_validate_json(parameters.get("policy", "{}")).groups
        except ValidationError:
            return {}
        return {group_name: self._read_group(groups[group_name]) for group_name in group_names if group_name in groups}

    def _read_group(self, group: Mapping[str, Any]) -> GroupSeen:
        group_name = group["AutoScalingGroupName"]
        hooks = self._aws_client("autoscaling").describe_lifecycle_hooks(AutoScalingGroupName=group_name)[
            "LifecycleHooks"
        ]
        in_service_count = sum(instance["LifecycleState"] == "InService" for instance in group.get("Instances", ()))
        group_sizes = (group["MinSize"], group["MaxSize"], group["DesiredCapacity"], in_service_count)
        tags = {tag["Key"]: tag["Value"] for tag in group.get("Tags", ())}
        mixed_template = group.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
        entries_with_type = (*group.get("Instances", ()), *mixed_template.get("Overrides", ()))
        instance_types = frozenset(entry["InstanceType"] for entry in entries_with_type if entry.get("InstanceType"))
        abandons_launches = any(
            hook["LifecycleTransition"] == _LAUNCH_TRANSITION and hook["DefaultResult"] == "ABANDON" for hook in hooks
        )
        propagated_tag_keys = frozenset(tag["Key"] for tag in group.get("Tags", ()) if tag.get("PropagateAtLaunch"))
        hook_transitions = frozenset(hook["LifecycleTransition"] for hook in hooks)
        return GroupSeen(*group_sizes, tags, hook_transitions, instance_types, abandons_launches, propagated_tag_keys)

    def _read_template(self, name: str) -> TemplateSeen | None:
        try:
            template_versions = self._aws_client("ec2").describe_launch_template_versions(
                LaunchTemplateName=name, Versions=["$Default"]
            )["LaunchTemplateVersions"]
        except ClientError as error:
            if error_code(error) == "InvalidLaunchTemplateName.NotFoundException":
                return None
            raise
        template_data = template_versions[0]["LaunchTemplateData"]
        instance_tags = {
            tag["Key"]: tag.get("Value", "")
            for specification in template_data.get("TagSpecifications", ())
            if specification["ResourceType"] == "instance"
            for tag in specification["Tags"]
        }
        return TemplateSeen(instance_tags, template_data.get("ImageId", ""), _volume_sizes(template_data))

    def _read_image(self, image: str) -> ImageSeen | None:
        """Find an AMI by a filter, because a call with the id of a deleted AMI fails."""
        found_images = self._aws_client("ec2").describe_images(Filters=[{"Name": "image-id", "Values": [image]}])[
            "Images"
        ]
        return ImageSeen(str(found_images[0]["State"]), _volume_sizes(found_images[0])) if found_images else None

    def _wheel_exists(self, source: str) -> bool | None:
        if not source.startswith("s3://"):
            return None
        bucket, _, key = source.removeprefix("s3://").partition("/")
        try:
            listing = self._aws_client("s3").list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
        except ClientError as error:
            if error_code(error) == "NoSuchBucket":
                return False
            raise
        return any(entry["Key"] == key for entry in listing.get("Contents", ()))

    # ---- rights

    def _denied_node_rights(
        self, cluster: str, stack: StackSeen | Unread | None, stage: Stage | None
    ) -> tuple[str, ...] | Unread:
        resources = stack.resources if isinstance(stack, StackSeen) else {}
        if "NodeRole" not in resources or stage is None:
            return Unread("the cluster's stack does not name its nodes' role")
        denied_rights: list[str] = []
        for role_resource, rights_of_role in (
            ("NodeRole", _rights_of_base_nodes),
            ("WorkerRole", _rights_of_all_nodes),
        ):
            if role_resource not in resources:
                continue  # a cluster without added workers
            role_arn = self._read_role_arn(resources[role_resource])
            if isinstance(role_arn, Unread):
                return role_arn
            region_and_account = f"{self._configured_region()}:{role_arn.split(':')[4]}"
            denied_role_rights = self._denied_rights(
                role_arn, rights_of_role(role_arn.split(":")[1], region_and_account, cluster, stage)
            )
            if isinstance(denied_role_rights, Unread):
                return denied_role_rights
            denied_rights += denied_role_rights
        return tuple(dict.fromkeys(denied_rights))

    def _read_role_arn(self, name: str) -> str | Unread:
        return self._read_or_unread(
            f"the role {name}", lambda: str(self._aws_client("iam").get_role(RoleName=name)["Role"]["Arn"])
        )

    def _denied_caller_rights(self, caller: str | Unread, rights: Iterable[Right]) -> tuple[str, ...] | Unread:
        if isinstance(caller, Unread):
            return caller
        if caller.endswith(":root"):
            return ()
        role_match = _ASSUMED_ROLE_ARN.fullmatch(caller)
        if role_match is None:
            return self._denied_rights(caller, rights)
        role_arn = self._read_role_arn(role_match[3])
        return role_arn if isinstance(role_arn, Unread) else self._denied_rights(role_arn, rights)

    def _denied_rights(self, principal: str, rights: Iterable[Right]) -> tuple[str, ...] | Unread:
        def simulate_rights() -> tuple[str, ...]:
            iam_client = self._aws_client("iam")
            return tuple(
                f"{right.action} on {right.resource}"
                for right in rights
                if not _is_allowed(iam_client, principal, right)
            )

        return self._read_or_unread("IAM's simulation", simulate_rights)


def _volume_sizes(description: Mapping[str, Any]) -> dict[str, int]:
    """Volume sizes in GiB by device, from AWS's description of an image or a launch template."""
    return {
        device["DeviceName"]: int(device["Ebs"]["VolumeSize"])
        for device in description.get("BlockDeviceMappings", ())
        if "VolumeSize" in device.get("Ebs", {})
    }


def _rights_of_all_nodes(partition: str, region_and_account: str, cluster: str, _stage: Stage) -> tuple[Right, ...]:
    parameter_names = [parameter(cluster, "node"), parameter(cluster, "target"), parameter(cluster, "coordinator")]
    return (
        *(
            Right("ssm:GetParameter", f"arn:{partition}:ssm:{region_and_account}:parameter{parameter_name}")
            for parameter_name in parameter_names
        ),
        _event_right(partition, region_and_account, source_of(NODE_SOURCE, cluster)),
    )


def _rights_of_base_nodes(partition: str, region_and_account: str, cluster: str, stage: Stage) -> tuple[Right, ...]:
    """The IAM permissions of base nodes: the permissions of all nodes, and permissions to run the coordinator."""
    parameter_names = (stage_parameter(str(stage.name), "table"), parameter(cluster, "coordinator"))
    table_parameter, coordinator_parameter = (
        f"arn:{partition}:ssm:{region_and_account}:parameter{parameter_name}" for parameter_name in parameter_names
    )
    key_context = {"dynamodb:LeadingKeys": f"cluster#{cluster}"}
    return (
        *_rights_of_all_nodes(partition, region_and_account, cluster, stage),
        Right("ssm:GetParameter", table_parameter),
        Right("ssm:PutParameter", coordinator_parameter),
        Right("dynamodb:GetItem", f"arn:{partition}:dynamodb:{region_and_account}:table/{stage.table}", key_context),
        _event_right(partition, region_and_account, source_of(COORDINATOR_SOURCE, cluster)),
    )


def _event_right(partition: str, region_and_account: str, source: str) -> Right:
    return Right(
        "events:PutEvents", f"arn:{partition}:events:{region_and_account}:event-bus/default", {"events:source": source}
    )


def _is_allowed(iam: Any, principal: str, right: Right) -> bool:
    context_entries = [
        {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "stringList"}
        for key, value in right.context.items()
    ]
    simulation = iam.simulate_principal_policy(
        PolicySourceArn=principal,
        ActionNames=[right.action],
        ResourceArns=[right.resource],
        ContextEntries=context_entries,
    )
    return all(result["EvalDecision"] == "allowed" for result in simulation["EvaluationResults"])
