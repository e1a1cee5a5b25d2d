"""A cluster in the embedded cloud: the stack of the template that people deploy, made through CloudFormation."""

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
from dyntrain.controller.contract.messages import launch_template_name
from dyntrain.controller.local import own_command, prepare_digits
from dyntrain.controller.local.cloud.embedded import Cloud
from dyntrain.controller.local.errors import ProvisionFailed

PYTHON = own_command.PYTHON
BUCKET = "dyntrain-packages"
KEY_PAIR = "anybody"
WHEEL = "dyntrain-0.1.0-py3-none-any.whl"  # what is named when nobody will install it


@dataclass(frozen=True)
class Cluster:
    """What was made. `workers` are the base nodes besides the master."""

    name: str
    launch_template: str
    group: str
    master: str | None
    workers: tuple[str, ...]


def template_text() -> str:
    return files("dyntrain.node_bootstrap").joinpath("cluster.template.yaml").read_text(encoding="utf-8")


def create_stack(
    cloud: Cloud,
    name: str,
    command: Sequence[str],
    given: Mapping[str, str] | None = None,
    policy: Mapping[str, Any] | None = None,
    wheel: Path | None = None,
) -> Cluster:
    """`given` are more of the template's parameters, `policy` more fields of the cluster's policy. `wheel` is what
    machines that run their user data install from S3. Raises ProvisionFailed with what AWS said.
    """
    parameters = {
        "KeyName": KEY_PAIR,
        "Stage": cloud.options.stage,
        "PackageSource": f"s3://{BUCKET}/{WHEEL if wheel is None else wheel.name}",
        "TrainingCommand": json.dumps(list(command)),
        "IdentityKeys": cloud.identity_keys,
        "PolicyFields": ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in (policy or {}).items()),
        **(given or {}),
    }
    try:
        ec2 = cloud.client("ec2")
        if KEY_PAIR not in [pair["KeyName"] for pair in ec2.describe_key_pairs()["KeyPairs"]]:
            ec2.create_key_pair(KeyName=KEY_PAIR, KeyType="ed25519")
        if wheel is not None:
            cloud.client("s3").create_bucket(Bucket=BUCKET)
            cloud.client("s3").upload_file(str(wheel), BUCKET, wheel.name)
        cloud.client("cloudformation").create_stack(
            StackName=name,
            TemplateBody=template_text(),
            Capabilities=["CAPABILITY_IAM"],
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
        )
    except (OSError, BotoCoreError, ClientError) as error:
        raise ProvisionFailed(f"the stack of cluster {name} could not be made: {error}") from error
    groups = cloud.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    members = {group["AutoScalingGroupName"]: [one["InstanceId"] for one in group["Instances"]] for group in groups}
    master = next(iter(members[f"{name}-master"]), None)
    return Cluster(name, launch_template_name(name), f"{name}-workers", master, tuple(members[f"{name}-base"]))


def digits_command(epochs: int, *more: str, python: str = "python") -> tuple[str, ...]:
    """Trains on the data that the prepare script leaves on the volume, where the command runs. 0 epochs: on and on."""
    words = ("-m", "dyntrain.training.examples.digits", "--epochs", str(epochs), "--data", prepare_digits.NAME)
    return (python, *words, *more)


def write_prepare_script(shared: Path) -> Path:
    """Puts the digits' prepare-data.py on the volume."""
    target = shared / "prepare-data.py"
    aside = shared / ".prepare-data.py"
    shutil.copyfile(Path(prepare_digits.__file__), aside)
    os.replace(aside, target)
    return target


def fill_volume(shared: Path) -> None:
    """With the digits and the script that looks for them, for nodes without scikit-learn, from which they come."""
    write_prepare_script(shared)
    prepare_digits.build(shared / prepare_digits.NAME)
