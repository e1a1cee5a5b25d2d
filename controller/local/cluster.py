"""A cluster, set up through the ordinary AWS API as its CloudFormation stack would: parameters, launch template, group, hooks, base nodes."""

from __future__ import annotations

import base64
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError

from controller.contract import (
    BASE_TAG,
    NODE_TYPE_TAG,
    OWNER_TAG,
    ClusterPolicy,
    NodeConfig,
    elastic_tag,
    launch_template_name,
    parameter,
)
from controller.local import prepare_digits
from controller.local.errors import ProvisionFailed

IMAGE = "ami-0a1b2c3d4e5f60718"  # moto takes any well-formed image id
USER_DATA = "#!/bin/sh\nexec python3 -m node_bootstrap run\n"


@dataclass(frozen=True)
class ClusterPlan:
    """`mount` is the volume that all nodes share. `base_workers` come on top of the master. `job` false: base nodes are not launched.

    `identity_keys` empty: nodes need not prove to the coordinator who they are. `hook_seconds` is the heartbeat timeout of both
    lifecycle hooks, 30 to 7200.
    """

    cluster: str
    mount: Path
    training_cmd: tuple[str, ...]
    prepare_script: Path | None = None
    base_workers: int = 1
    max_group: int = 8
    min_workers: int = 1
    max_workers: int = 16
    segment_steps: int | None = None
    hook_seconds: int = 300
    instance_type: str = "c5.large"
    job: bool = True
    prepare_timeout_seconds: float = 300.0
    prepare_attempts: int = 3
    node_environment: Mapping[str, str] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)
    identity_keys: str = ""

    @property
    def group(self) -> str:
        return f"{self.cluster}-workers"

    @property
    def hooks(self) -> tuple[str, str]:
        """Of launch and of terminate."""
        return f"{self.cluster}-launch", f"{self.cluster}-terminate"


@dataclass(frozen=True)
class Cluster:
    """What was made. `workers` are the base nodes besides the master."""

    name: str
    launch_template: str
    group: str
    master: str | None
    workers: tuple[str, ...]


def provision(environment: Mapping[str, str], plan: ClusterPlan) -> Cluster:
    """`environment` has the endpoint, keys and region (`Cloud.environment`). Raises ProvisionFailed with what AWS said."""
    session = boto3.Session(
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_DEFAULT_REGION"],
    )
    endpoint = environment["AWS_ENDPOINT_URL"]
    try:
        _put_parameters(session.client("ssm", endpoint_url=endpoint), plan)
        ec2 = session.client("ec2", endpoint_url=endpoint)
        subnet = _default_subnet(ec2)
        _create_launch_template(ec2, plan)
        _create_group(session.client("autoscaling", endpoint_url=endpoint), plan, subnet)
        master = _launch_base(ec2, plan, subnet, "Master", "master") if plan.job else None
        numbers = range(1, plan.base_workers + 1) if plan.job else ()
        workers = tuple(_launch_base(ec2, plan, subnet, "Worker", f"base-{number}") for number in numbers)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise ProvisionFailed(f"cluster {plan.cluster} could not be set up: {wrong}") from error
    except (BotoCoreError, ClientError) as error:
        raise ProvisionFailed(f"cluster {plan.cluster} could not be set up: {error}") from error
    return Cluster(plan.cluster, launch_template_name(plan.cluster), plan.group, master, workers)


def digits_command(mount: Path, epochs: int, *more: str) -> tuple[str, ...]:
    """The demo's training command on the data that its prepare script leaves on the volume."""
    data = str(mount / prepare_digits.NAME)
    return (sys.executable, "-m", "training.examples.digits", "--epochs", str(epochs), "--data", data, *more)


def write_prepare_script(mount: Path) -> Path:
    """Puts the digits' prepare-data.py on the volume."""
    target = mount / "prepare-data.py"
    aside = mount / ".prepare-data.py"
    shutil.copyfile(Path(prepare_digits.__file__), aside)
    os.replace(aside, target)
    return target


def _put_parameters(ssm: Any, plan: ClusterPlan) -> None:
    limits = {"min_workers": plan.min_workers, "max_workers": plan.max_workers}
    policy = ClusterPolicy.model_validate({"cluster": plan.cluster, "groups": (plan.group,), **limits, **plan.policy})
    node = NodeConfig(
        cluster=plan.cluster,
        mount=str(plan.mount),
        prepare_script=None if plan.prepare_script is None else str(plan.prepare_script),
        prepare_timeout_seconds=plan.prepare_timeout_seconds,
        prepare_attempts=plan.prepare_attempts,
        training_cmd=plan.training_cmd,
        workers=plan.base_workers + 1,
        segment_steps=plan.segment_steps,
        environment=dict(plan.node_environment),
        identity_keys=plan.identity_keys,
        **limits,
    )
    ssm.put_parameter(Name=parameter(plan.cluster, "policy"), Type="String", Value=policy.model_dump_json())
    ssm.put_parameter(Name=parameter(plan.cluster, "node"), Type="String", Value=node.model_dump_json())


def _default_subnet(ec2: Any) -> str:
    subnets = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
    return str(min(subnets, key=lambda subnet: str(subnet["AvailabilityZone"]))["SubnetId"])


def _tags(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _metadata_options() -> dict[str, str]:
    return {"HttpTokens": "required", "HttpEndpoint": "enabled", "InstanceMetadataTags": "enabled"}


def _create_launch_template(ec2: Any, plan: ClusterPlan) -> None:
    tags = {elastic_tag(plan.cluster): "", NODE_TYPE_TAG: "Worker", OWNER_TAG: plan.cluster, "Name": f"{plan.cluster}-worker"}
    ec2.create_launch_template(
        LaunchTemplateName=launch_template_name(plan.cluster),
        LaunchTemplateData={
            "ImageId": IMAGE,
            "InstanceType": plan.instance_type,
            "UserData": base64.b64encode(USER_DATA.encode()).decode(),
            "MetadataOptions": _metadata_options(),
            "TagSpecifications": [{"ResourceType": "instance", "Tags": _tags(tags)}],
        },
    )


def _create_group(autoscaling: Any, plan: ClusterPlan, subnet: str) -> None:
    about = {"ResourceId": plan.group, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
    owner = {**about, "Key": OWNER_TAG, "Value": plan.cluster}
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName=plan.group,
        LaunchTemplate={"LaunchTemplateName": launch_template_name(plan.cluster), "Version": "$Default"},
        MinSize=0,
        MaxSize=plan.max_group,
        DesiredCapacity=0,
        VPCZoneIdentifier=subnet,
        Tags=[owner],  # what the controller's role may act on
    )
    launch, terminate = plan.hooks
    for hook, transition, default in (
        (launch, "autoscaling:EC2_INSTANCE_LAUNCHING", "ABANDON"),
        (terminate, "autoscaling:EC2_INSTANCE_TERMINATING", "CONTINUE"),
    ):
        autoscaling.put_lifecycle_hook(
            LifecycleHookName=hook,
            AutoScalingGroupName=plan.group,
            LifecycleTransition=transition,
            HeartbeatTimeout=plan.hook_seconds,
            DefaultResult=default,
        )


def _launch_base(ec2: Any, plan: ClusterPlan, subnet: str, node_type: str, suffix: str) -> str:
    tags = {NODE_TYPE_TAG: node_type, BASE_TAG: "true", OWNER_TAG: plan.cluster, "Name": f"{plan.cluster}-{suffix}"}
    answer = ec2.run_instances(
        ImageId=IMAGE,
        InstanceType=plan.instance_type,
        MinCount=1,
        MaxCount=1,
        SubnetId=subnet,
        UserData=USER_DATA,
        MetadataOptions=_metadata_options(),
        TagSpecifications=[{"ResourceType": "instance", "Tags": _tags(tags)}],
    )
    return str(answer["Instances"][0]["InstanceId"])
