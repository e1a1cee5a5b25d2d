"""Create a cluster in the embedded cloud (an emulation of AWS) from the CloudFormation template that users deploy."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from dyntrain.controller.adapters.submission import DEFAULTS_PATH
from dyntrain.controller.contract.messages import launch_template_name
from dyntrain.controller.local import own_command, prepare_digits
from dyntrain.controller.local.cloud.embedded import Cloud
from dyntrain.controller.local.errors import ProvisionFailed

PYTHON = own_command.PYTHON
BUCKET_PATTERN = "dyntrain-packages-{}"  # with the account's number, because bucket names are global
KEY_PAIR_NAME = "anybody"
JOBS_STACK_NAME = "dyntrain-jobs"
EMPTY_WHEEL_NAME = "dyntrain-0.1.0-py3-none-any.whl"  # name of an empty file for machines that install no wheel


@dataclass(frozen=True)
class Cluster:
    """The cluster that `create_stack` created. `workers` are the instance ids of the base nodes besides the master."""

    name: str
    launch_template: str  # name of the workers' launch template
    group: str  # name of the workers' Auto Scaling group
    master: str | None  # instance id of the master node
    workers: tuple[str, ...]  # instance ids of all base nodes besides the master


def template_text() -> str:
    return files("dyntrain.node_bootstrap").joinpath("cluster.template.yaml").read_text(encoding="utf-8")


def create_stack(
    cloud: Cloud,
    name: str,
    command: Sequence[str],
    extra: Mapping[str, str] | None = None,
    policy: Mapping[str, Any] | None = None,
    wheel: Path | None = None,
) -> Cluster:
    """Create the CloudFormation stack of a cluster. `extra` has additional parameters of the template. `policy` has
    additional fields of the cluster's policy. Machines that run their user data install `wheel` from S3. Raises
    ProvisionFailed with AWS's message.
    """
    bucket = BUCKET_PATTERN.format(cloud.account.number)
    parameters = {
        "KeyName": KEY_PAIR_NAME,
        "Stage": cloud.options.stage,
        "PackageSource": f"s3://{bucket}/{EMPTY_WHEEL_NAME if wheel is None else wheel.name}",
        "TrainingCommand": json.dumps(list(command)),
        "IdentityKeys": cloud.identity_keys,
        "PolicyFields": ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in (policy or {}).items()),
        **(extra or {}),
    }
    try:
        ec2 = cloud.client("ec2")
        if KEY_PAIR_NAME not in [key_pair["KeyName"] for key_pair in ec2.describe_key_pairs()["KeyPairs"]]:
            ec2.create_key_pair(KeyName=KEY_PAIR_NAME, KeyType="ed25519")
        _put_wheel(cloud, bucket, wheel)
        cloud.client("cloudformation").create_stack(
            StackName=name,
            TemplateBody=template_text(),
            Capabilities=["CAPABILITY_IAM"],
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
        )
    except (OSError, BotoCoreError, ClientError) as error:
        raise ProvisionFailed(f"the stack of cluster {name} could not be created: {error}") from error
    groups = cloud.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    instances_by_group = {
        group["AutoScalingGroupName"]: [instance["InstanceId"] for instance in group["Instances"]] for group in groups
    }
    master = next(iter(instances_by_group[f"{name}-master"]), None)
    return Cluster(
        name, launch_template_name(name), f"{name}-workers", master, tuple(instances_by_group[f"{name}-base"])
    )


def _put_wheel(cloud: Cloud, bucket: str, wheel: Path | None) -> None:
    """Upload the wheel to the bucket where machines and the command `dyntrain doctor` look for the wheel. Without a
    wheel, upload an empty file for machines that do not run their user data and install nothing.
    """
    s3 = cloud.client("s3")
    if bucket not in [existing_bucket["Name"] for existing_bucket in s3.list_buckets()["Buckets"]]:
        s3.create_bucket(Bucket=bucket)
    if wheel is None:
        s3.put_object(Bucket=bucket, Key=EMPTY_WHEEL_NAME, Body=b"")
    else:
        s3.upload_file(str(wheel), bucket, wheel.name)


def create_jobs_stack(cloud: Cloud) -> None:
    """Create the stack that `dyntrain job submit` uses when no bucket, role or security group is named. Raises
    ProvisionFailed.
    """
    job_template_text = files("dyntrain.node_bootstrap").joinpath("job.template.yaml").read_text(encoding="utf-8")
    try:
        cloud.client("cloudformation").create_stack(
            StackName=JOBS_STACK_NAME, TemplateBody=job_template_text, Capabilities=["CAPABILITY_IAM"]
        )
        bucket = cloud.client("ssm").get_parameter(Name=f"{DEFAULTS_PATH}bucket")["Parameter"]["Value"]
        _put_wheel(cloud, bucket, None)
    except (BotoCoreError, ClientError) as error:
        raise ProvisionFailed(f"the stack of jobs could not be created: {error}") from error


def digits_command(epochs: int, *extra_arguments: str, python: str = "python") -> tuple[str, ...]:
    """The command that trains on the handwritten digits. The command must run in the folder of the shared volume where
    the prepare script writes the digits. With `epochs` 0, the training never ends.
    """
    module_arguments = (
        "-m",
        "dyntrain.training.examples.digits",
        "--epochs",
        str(epochs),
        "--data",
        prepare_digits.DATA_FILE,
    )
    return (python, *module_arguments, *extra_arguments)


def write_prepare_script(shared: Path) -> Path:
    """Write the script prepare-data.py, which writes the handwritten digits, to the shared volume."""
    script_path = shared / "prepare-data.py"
    temporary_path = shared / ".prepare-data.py"
    shutil.copyfile(Path(prepare_digits.__file__), temporary_path)
    os.replace(temporary_path, script_path)
    return script_path


def fill_volume(shared: Path) -> None:
    """Write the handwritten digits and their prepare script to the shared volume. The digits come from scikit-learn, so
    nodes without scikit-learn need the written digits.
    """
    write_prepare_script(shared)
    prepare_digits.write_digits(shared / prepare_digits.DATA_FILE)
