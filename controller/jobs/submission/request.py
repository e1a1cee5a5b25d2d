"""A user's request for a job, and the checks of the request before AWS is called. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any

from dyntrain.controller.contract.errors import GiveUp, Misconfigured
from dyntrain.controller.contract.job_files import JOB_NAME, JOB_TAG, client_token
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.submission.ports import RootVolume

BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED_VARIABLES = ("JOB_ID", "NODE_RANK", "NUM_NODES", "MASTER_ADDR", "MASTER_PORT", "RESUMED")
MASTER_PORT = 7777
EXTRA_DISK_GIB = 50  # for packages, code and artifacts: an image's own volume is full of the image
MAX_HOURS = 24.0 * 28  # limit of --max-hours
DATA_ROOT = "/opt/ml/input/data"  # where programs for SageMaker look


@dataclass(frozen=True)
class JobRequest:
    """A user's request for a job."""

    name: str  # the job's name
    code: str  # a folder or s3://BUCKET/KEY
    nodes: int  # number of machines
    instance_type: str
    image: str  # AMI id; "" for the newest public image
    bucket: str  # the S3 bucket for the job's files
    command: tuple[str, ...]  # the command that each node runs
    profile: str = ""  # name or ARN of the IAM instance profile; "" for none
    placement_group: str = ""  # name of the EC2 placement group; "" for none
    security_group: str = ""  # "" for AWS's default
    subnet: str = ""  # "" for AWS's default
    spot: bool = False  # whether to launch Spot instances
    retries: int = 0  # how often an interrupted job may be launched again
    max_hours: float = 24.0  # time limit of the job
    env: Mapping[str, str] = field(default_factory=dict)  # the command's environment variables
    requirements: str = ""  # pip's requirements file in the code; "" for none
    artifacts: str = "artifacts"  # the folder in the code that is saved to the bucket
    port: int = MASTER_PORT  # TCP port of rank 0, given to the command
    disk: int = 0  # GiB of the root volume; 0 for the image's size and EXTRA_DISK_GIB more
    channels: tuple[str, ...] = ()  # data channels, as arguments of the feed
    workers_per_node: int = 1  # ranks on each machine, which share the channels
    data_root: str = DATA_ROOT  # the folder in which the command finds its data channels

    def digest(self, code: str) -> str:
        """A digest of the job request and of the code. Equal digests mean the same job. `code` identifies the code, for
        example by the digest of the packed code.
        """
        digested_fields = {**asdict(self), "code": code}
        return hashlib.sha256(json.dumps(digested_fields, sort_keys=True).encode()).hexdigest()[:16]

    def as_json(self) -> bytes:
        """The job request as JSON, in the form that is stored in the bucket."""
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode()


def check(request: JobRequest) -> None:
    """Raise Misconfigured for a job request that cannot work."""
    if not re.fullmatch(JOB_NAME, request.name):
        raise Misconfigured(f"{request.name!r} is no job name: use at most 48 letters, digits, . _ and -")
    if not BUCKET_NAME.fullmatch(request.bucket):
        raise Misconfigured(f"{request.bucket!r} is no name of an S3 bucket")
    if not request.command:
        raise Misconfigured("no command is given; the command comes last, after --")
    if request.retries and not request.spot:
        raise Misconfigured("--retries is only for machines that EC2 may take back, so it needs --spot")
    if not 0 < request.max_hours <= MAX_HOURS:
        raise Misconfigured(f"--max-hours {request.max_hours:g} is not between 0 and {MAX_HOURS:g}")
    for variable_name in request.env:
        if not VARIABLE_NAME.fullmatch(variable_name):
            raise Misconfigured(f"{variable_name!r} is no name of an environment variable")
        if variable_name in RESERVED_VARIABLES:
            raise Misconfigured(f"{variable_name} is set by dyntrain on the machines; --env cannot set it")
    for option, path in (("--requirements", request.requirements), ("--artifacts", request.artifacts)):
        relative_path = PurePosixPath(path)
        if relative_path.is_absolute() or ".." in relative_path.parts:
            raise Misconfigured(f"{option} {path!r} must lie inside the code folder")
    if not PurePosixPath(request.artifacts).parts:
        raise Misconfigured("--artifacts must be a folder of its own inside the code folder")


def environment_of(settings: Sequence[str]) -> dict[str, str]:
    """Parse the NAME=VALUE arguments of the option --env into environment variables."""
    environment = {}
    for setting in settings:
        variable_name, equals_sign, value = setting.partition("=")
        if not equals_sign:
            raise Misconfigured(f"--env {setting!r} is not NAME=VALUE")
        environment[variable_name] = value
    return environment


def new_record(request: JobRequest, digest: str, image: str, submission: str, now: float) -> JobRecord:
    return JobRecord(
        name=request.name,
        submission=submission,
        digest=digest,
        request=hashlib.sha256(request.as_json()).hexdigest(),
        image=image,
        bucket=request.bucket,
        nodes=request.nodes,
        instance_type=request.instance_type,
        spot=request.spot,
        retries=request.retries,
        max_hours=request.max_hours,
        since=now,
        changed=now,
    )


def refuse_used_name(existing: JobRecord, digest: str) -> None:
    """Raise GiveUp because the job's name is in use. Nothing is raised if the existing job is the same job and was
    interrupted while launching.
    """
    if existing.state == "LAUNCHING" and existing.digest == digest:
        return
    if existing.ended and existing.elastic:
        raise GiveUp(f"the name {existing.name} is in use: its job has ended ({existing.state}); take another name")
    if existing.ended:
        raise GiveUp(
            f"the name {existing.name} is in use: its job has ended ({existing.state}), and its artifacts are in "
            f"s3://{existing.bucket}/{existing.name}/; take another name, or `dyntrain job resubmit {existing.name}`"
        )
    raise GiveUp(
        f"the name {existing.name} is in use: its job is {existing.state}; see `dyntrain job status {existing.name}`"
    )


def plan_fields(request: JobRequest, record: JobRecord, command: Sequence[str]) -> dict[str, Any]:
    """The content of the job's file plan.json, which the job's nodes read."""
    return {
        "name": request.name,
        "run": record.run,
        "nodes": request.nodes,
        "port": request.port,
        "command": list(command),
        "env": dict(request.env),
        "artifacts": request.artifacts,
        "requirements": request.requirements,
        "resumed": record.attempt > 1,
        "seconds": request.max_hours * 3600.0,
    }


def root_volume(request: JobRequest, root: RootVolume | None) -> list[dict[str, Any]]:
    """The root volume of the job's machines, as a block device mapping for EC2. Raises GiveUp if the machine image
    needs more space than the option --disk allows.
    """
    if root is None:
        if request.disk:
            raise GiveUp(f"--disk {request.disk}: the image {request.image} has no root volume; take another image")
        return []
    if request.disk and request.disk < root.gib:
        raise GiveUp(
            f"--disk {request.disk} is less than the image needs: give at least {root.gib} (GiB), or leave out --disk"
        )
    volume = {"VolumeSize": request.disk or root.gib + EXTRA_DISK_GIB, "VolumeType": "gp3", "DeleteOnTermination": True}
    return [{"DeviceName": root.device, "Ebs": volume}]


def launch_fields(
    request: JobRequest, run: str, image: str, user_data: str, volumes: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The fields of the single RunInstances call that launches the job's machines. The RunInstances call launches
    either all machines or no machine, and launches no second set of machines when repeated.
    """
    instance_tags = {
        "NAME": request.name,
        "JOB_ID": request.name,
        "NUM_NODES": str(request.nodes),
        "MASTER_PORT": str(request.port),
        JOB_TAG: request.name,
    }
    tag_list = [{"Key": tag_key, "Value": tag_value} for tag_key, tag_value in instance_tags.items()]
    call_fields: dict[str, Any] = {
        "ClientToken": client_token(run),
        "MinCount": request.nodes,
        "MaxCount": request.nodes,
        "ImageId": image,
        "InstanceType": request.instance_type,
        "UserData": user_data,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled", "InstanceMetadataTags": "enabled"},
        "TagSpecifications": [
            {"ResourceType": resource_type, "Tags": tag_list} for resource_type in ("instance", "volume")
        ],
    }
    if volumes:
        call_fields["BlockDeviceMappings"] = list(volumes)
    if request.profile:
        call_fields["IamInstanceProfile"] = (
            {"Arn": request.profile} if request.profile.startswith("arn:") else {"Name": request.profile}
        )
    if request.placement_group:
        call_fields["Placement"] = {"GroupName": request.placement_group}
    if request.security_group:
        call_fields["SecurityGroupIds"] = [request.security_group]
    if request.subnet:
        call_fields["SubnetId"] = request.subnet
    if request.spot:
        call_fields["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
        }
    return call_fields
