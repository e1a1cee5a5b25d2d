"""Read what the doctor judges. Each reading stands alone: a failed one becomes an `Unread`, and after the deadline
nothing more is read.
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
    Right,
    Seen,
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

SECONDS = 30.0  # after these nothing more is read; the last call may take another 26
_CONFIG = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2})
_ROLE = re.compile(r"arn:([\w-]+):sts::(\d+):assumed-role/([^/]+)/.*")
_LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
_TABLES = "-FactsTable-*"
_ALARM = "AWS::CloudWatch::Alarm"
_ALARMS = 100  # names in one call
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
    """Read everything. `clock` counts seconds from any start; `doing` is called with what is read next. `wanted_stage`
    None: the only stage there is.
    """

    def __init__(
        self,
        wanted_stage: str | None,
        clock: Callable[[], float] = time.monotonic,
        doing: Callable[[str], None] = lambda _what: None,
    ) -> None:
        self._doing = doing
        self._session, self._wanted = Session(), wanted_stage
        self._clock, self._until = clock, clock() + SECONDS

    def read(self, only: str | None) -> Seen:
        """Read all clusters, or `only` one."""
        stages = self._try("the stages", lambda: self._below(STAGES))
        stage = self._chosen(stages)
        caller = self._try("who you are", lambda: str(self._client("sts").get_caller_identity()["Arn"]))
        name = self._controllers_stack(stages, stage)
        stack = (
            self._try("the controller's stack", lambda: self._stack(name))
            if name
            else Unread("the stage does not say the name of its stack")
        )
        return Seen(
            region=self._region(),
            caller=caller,
            stages=stages,
            wanted_stage=self._wanted,
            stack=stack,
            table=self._try("the table", lambda: self._table(stage.table)) if stage else Unread("there is no stage"),
            alarms=self._try("the alarms", lambda: self._alarms(stack.alarms))
            if isinstance(stack, StackSeen)
            else Unread("the controller's stack was not found"),
            denied=self._denied_to(caller, _CALLS),
            clusters=self._try("the clusters", lambda: self._clusters(only, stage)),
        )

    def _client(self, service: str) -> Any:
        with creating_client():
            client = self._session.create_client(service, config=_CONFIG)
        client.meta.events.register("before-call", self._in_time)  # a listing may have any number of pages
        return client

    def _try(self, doing: str, read: Callable[[], T]) -> T | Unread:
        try:
            self._in_time()
            self._doing(f"reading {doing}")
            with translated_errors(f"reading {doing}"):
                return read()
        except ControllerError as error:
            return Unread(" ".join(str(error).split()))

    def _in_time(self, **_call: Any) -> None:
        if self._clock() > self._until:
            raise RetryLater(f"not read within {SECONDS:.0f} s")

    def _region(self) -> str | Unread:
        region = self._session.get_config_variable("region")
        return str(region) if region else Unread("none is set: export AWS_DEFAULT_REGION or configure a profile")

    def _chosen(self, stages: Mapping[str, str] | Unread) -> Stage | None:
        try:
            return None if isinstance(stages, Unread) else chosen_stage(stages, self._wanted)
        except Misconfigured:
            return None

    # ---- the controller

    def _controllers_stack(self, stages: Mapping[str, str] | Unread, stage: Stage | None) -> str:
        if isinstance(stages, Unread) or stage is None or stage.name is None:
            return ""
        tables = stages.get(stage_parameter(stage.name, "tables"), "")
        return tables.removesuffix(_TABLES) if tables.endswith(_TABLES) else ""

    def _stack(self, name: str) -> StackSeen | None:
        cloudformation = self._client("cloudformation")
        try:
            stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        except ClientError as error:
            if error_code(error) == "ValidationError" and "does not exist" in str(error):
                return None
            raise
        pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=name)
        resources = [one for page in pages for one in page["StackResourceSummaries"]]
        return StackSeen(
            stack["StackStatus"],
            {one["ParameterKey"]: one.get("ParameterValue", "") for one in stack.get("Parameters", ())},
            {
                one["LogicalResourceId"]: one.get("ResourceStatusReason", one["ResourceStatus"])
                for one in resources
                if one["ResourceStatus"].endswith("FAILED")
            },
            {one["LogicalResourceId"]: one.get("PhysicalResourceId", "") for one in resources},
            tuple(one["PhysicalResourceId"] for one in resources if one["ResourceType"] == _ALARM),
        )

    def _table(self, name: str) -> str | None:
        try:
            return str(self._client("dynamodb").describe_table(TableName=name)["Table"]["TableStatus"])
        except ClientError as error:
            if error_code(error) == "ResourceNotFoundException":
                return None
            raise

    def _alarms(self, names: Sequence[str]) -> dict[str, str]:
        """Descriptions of the alarms that are raised, by name."""
        cloudwatch = self._client("cloudwatch")
        parts = [names[start : start + _ALARMS] for start in range(0, len(names), _ALARMS)]
        answers = [
            cloudwatch.describe_alarms(AlarmNames=part, StateValue="ALARM", MaxRecords=_ALARMS) for part in parts
        ]
        alarms = [alarm for answer in answers for alarm in answer.get("MetricAlarms", ())]
        return {alarm["AlarmName"]: alarm.get("AlarmDescription", "") for alarm in alarms}

    # ---- clusters

    def _below(self, path: str) -> dict[str, str]:
        pages = self._client("ssm").get_paginator("get_parameters_by_path").paginate(Path=path, Recursive=True)
        return {one["Name"]: one["Value"] for page in pages for one in page["Parameters"]}

    def _clusters(self, only: str | None, stage: Stage | None) -> dict[str, ClusterSeen]:
        """The clusters with a policy; `only` one is read with or without."""
        held = self._try(
            "the parameters", lambda: self._below(f"{PARAMETERS_PATH}{only}/" if only else PARAMETERS_PATH)
        )
        groups = self._try("the groups", self._groups)
        if only is not None:
            return {only: self._cluster(only, held, groups, stage)}
        if isinstance(held, Unread):
            raise GiveUp(held.why)
        names = sorted(
            name.split("/")[2] for name in held if re.fullmatch(rf"{PARAMETERS_PATH}[^/-][^/]*/policy", name)
        )
        return {name: self._cluster(name, held, groups, stage) for name in names}

    def _cluster(
        self,
        name: str,
        held: Mapping[str, str] | Unread,
        groups: Mapping[str, Mapping[str, Any]] | Unread,
        stage: Stage | None,
    ) -> ClusterSeen:
        """Read one cluster. `held` are parameters, `groups` all of the account's."""
        stack = self._try(f"the stack {name}", lambda: self._stack(name))
        template = self._try("the launch template", lambda: self._template(launch_template_name(name)))
        image = template.image if isinstance(template, TemplateSeen) else ""
        source = stack.parameters.get("PackageSource", "") if isinstance(stack, StackSeen) else ""
        below = f"{PARAMETERS_PATH}{name}/"
        own: Mapping[str, str] | Unread = held
        if not isinstance(held, Unread):
            own = {key.removeprefix(below): value for key, value in held.items() if key.startswith(below)}
        return ClusterSeen(
            own,
            stack,
            self._try(f"the groups of {name}", lambda: self._own_groups(own, groups)),
            template,
            self._try("the image", lambda: self._image(image)) if image else Unread("the launch template was not read"),
            self._try("the wheel", lambda: self._wheel(source)),
            self._nodes_denied(name, stack, stage),
        )

    def _groups(self) -> dict[str, Mapping[str, Any]]:
        """All groups of the account, as Auto Scaling describes them."""
        pages = self._client("autoscaling").get_paginator("describe_auto_scaling_groups").paginate()
        return {group["AutoScalingGroupName"]: group for page in pages for group in page["AutoScalingGroups"]}

    def _own_groups(
        self, own: Mapping[str, str] | Unread, groups: Mapping[str, Mapping[str, Any]] | Unread
    ) -> dict[str, GroupSeen]:
        """The groups that the cluster's policy names, whatever their names and tags."""
        if isinstance(own, Unread):
            raise GiveUp(own.why)
        if isinstance(groups, Unread):
            raise GiveUp(groups.why)
        try:
            named = ClusterPolicy.model_validate_json(own.get("policy", "{}")).groups
        except ValidationError:
            return {}
        return {name: self._group(groups[name]) for name in named if name in groups}

    def _group(self, group: Mapping[str, Any]) -> GroupSeen:
        name = group["AutoScalingGroupName"]
        hooks = self._client("autoscaling").describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
        serving = sum(one["LifecycleState"] == "InService" for one in group.get("Instances", ()))
        sizes = (group["MinSize"], group["MaxSize"], group["DesiredCapacity"], serving)
        tags = {tag["Key"]: tag["Value"] for tag in group.get("Tags", ())}
        template = group.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
        kinds = (*group.get("Instances", ()), *template.get("Overrides", ()))
        types = frozenset(one["InstanceType"] for one in kinds if one.get("InstanceType"))
        abandons = any(
            hook["LifecycleTransition"] == _LAUNCHING and hook["DefaultResult"] == "ABANDON" for hook in hooks
        )
        handed_on = frozenset(tag["Key"] for tag in group.get("Tags", ()) if tag.get("PropagateAtLaunch"))
        hooked = frozenset(hook["LifecycleTransition"] for hook in hooks)
        return GroupSeen(*sizes, tags, hooked, types, abandons, handed_on)

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
        """The image, by a filter: a call with the id fails for one that is gone."""
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
        return any(one["Key"] == key for one in answer.get("Contents", ()))

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
            here = f"{self._region()}:{arn.split(':')[4]}"
            missing = self._denied(arn, rights(arn.split(":")[1], here, cluster, stage))
            if isinstance(missing, Unread):
                return missing
            denied += missing
        return tuple(dict.fromkeys(denied))

    def _role(self, name: str) -> str | Unread:
        return self._try(f"the role {name}", lambda: str(self._client("iam").get_role(RoleName=name)["Role"]["Arn"]))

    def _denied_to(self, caller: str | Unread, rights: Iterable[Right]) -> tuple[str, ...] | Unread:
        if isinstance(caller, Unread):
            return caller
        if caller.endswith(":root"):
            return ()
        assumed = _ROLE.fullmatch(caller)
        if assumed is None:
            return self._denied(caller, rights)
        role = self._role(assumed[3])
        return role if isinstance(role, Unread) else self._denied(role, rights)

    def _denied(self, who: str, rights: Iterable[Right]) -> tuple[str, ...] | Unread:
        def simulated() -> tuple[str, ...]:
            iam = self._client("iam")
            return tuple(f"{right.action} on {right.resource}" for right in rights if not _allowed(iam, who, right))

        return self._try("IAM's simulation", simulated)


def _volumes(of: Mapping[str, Any]) -> dict[str, int]:
    """GiB by device, of an image or a launch template."""
    return {
        one["DeviceName"]: int(one["Ebs"]["VolumeSize"])
        for one in of.get("BlockDeviceMappings", ())
        if "VolumeSize" in one.get("Ebs", {})
    }


def _rights_of_all(partition: str, here: str, cluster: str, _stage: Stage) -> tuple[Right, ...]:
    names = [parameter(cluster, "node"), parameter(cluster, "target"), parameter(cluster, "coordinator")]
    return (
        *(Right("ssm:GetParameter", f"arn:{partition}:ssm:{here}:parameter{name}") for name in names),
        _sends(partition, here, source_of(NODE_SOURCE, cluster)),
    )


def _rights_of_base(partition: str, here: str, cluster: str, stage: Stage) -> tuple[Right, ...]:
    """The rights of base nodes: those of all nodes, and those for running the coordinator."""
    names = (stage_parameter(str(stage.name), "table"), parameter(cluster, "coordinator"))
    table, published = (f"arn:{partition}:ssm:{here}:parameter{name}" for name in names)
    of_cluster = {"dynamodb:LeadingKeys": f"cluster#{cluster}"}
    return (
        *_rights_of_all(partition, here, cluster, stage),
        Right("ssm:GetParameter", table),
        Right("ssm:PutParameter", published),
        Right("dynamodb:GetItem", f"arn:{partition}:dynamodb:{here}:table/{stage.table}", of_cluster),
        _sends(partition, here, source_of(COORDINATOR_SOURCE, cluster)),
    )


def _sends(partition: str, here: str, source: str) -> Right:
    return Right("events:PutEvents", f"arn:{partition}:events:{here}:event-bus/default", {"events:source": source})


def _allowed(iam: Any, who: str, right: Right) -> bool:
    context = [
        {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "stringList"}
        for key, value in right.context.items()
    ]
    answer = iam.simulate_principal_policy(
        PolicySourceArn=who, ActionNames=[right.action], ResourceArns=[right.resource], ContextEntries=context
    )
    return all(result["EvalDecision"] == "allowed" for result in answer["EvaluationResults"])
