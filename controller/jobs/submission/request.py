"""A person's request for a job, and its checks before AWS is called. Pure."""

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
from dyntrain.controller.jobs.submission.ports import Root

BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TOPOLOGY = ("JOB_ID", "NODE_RANK", "NUM_NODES", "MASTER_ADDR", "MASTER_PORT", "RESUMED")
MASTER_PORT = 7777
ROOM_GIB = 50  # for packages, code and artifacts: an image's own volume is full of the image
MOST_HOURS = 24.0 * 28
DATA_ROOT = "/opt/ml/input/data"  # where programs for SageMaker look


@dataclass(frozen=True)
class JobRequest:
    """A job as requested. `code` is a folder or s3://BUCKET/KEY. `image`, `profile` and the network are AWS's names; ""
    for AWS's own choice. `requirements` "" for none. `disk` in GiB, 0 for the image's size and ROOM_GIB more.
    `channels` are arguments of the feed; `workers_per_node` ranks on each machine share the channels.
    """

    name: str
    code: str
    nodes: int
    instance_type: str
    image: str
    bucket: str
    command: tuple[str, ...]
    profile: str = ""
    placement_group: str = ""
    security_group: str = ""
    subnet: str = ""
    spot: bool = False
    retries: int = 0
    max_hours: float = 24.0
    env: Mapping[str, str] = field(default_factory=dict)
    requirements: str = ""
    artifacts: str = "artifacts"
    port: int = MASTER_PORT
    disk: int = 0
    channels: tuple[str, ...] = ()
    workers_per_node: int = 1
    data_root: str = DATA_ROOT

    def digest(self, code: str) -> str:
        """The request's digest: equal digests mean the same job. `code` is the digest of the packed code."""
        fields = {**asdict(self), "code": code}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]

    def text(self) -> bytes:
        """The request as JSON, as the bucket keeps it."""
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode()


def check(request: JobRequest) -> None:
    """Raise Misconfigured for a request that cannot work."""
    if not re.fullmatch(JOB_NAME, request.name):
        raise Misconfigured(f"{request.name!r} is no name of a job: letters, digits, . _ and -, at most 48")
    if not BUCKET_NAME.fullmatch(request.bucket):
        raise Misconfigured(f"{request.bucket!r} is no name of an S3 bucket")
    if not request.command:
        raise Misconfigured("no command is given; it comes last, after --")
    if request.retries and not request.spot:
        raise Misconfigured("--retries is for machines that EC2 may take back: it needs --spot")
    if not 0 < request.max_hours <= MOST_HOURS:
        raise Misconfigured(f"--max-hours {request.max_hours:g} is not between 0 and {MOST_HOURS:g}")
    for name in request.env:
        if not VARIABLE.fullmatch(name):
            raise Misconfigured(f"{name!r} is no name of an environment variable")
        if name in TOPOLOGY:
            raise Misconfigured(f"{name} is set by dyntrain on the machines; --env cannot set it")
    for option, path in (("--requirements", request.requirements), ("--artifacts", request.artifacts)):
        relative_path = PurePosixPath(path)
        if relative_path.is_absolute() or ".." in relative_path.parts:
            raise Misconfigured(f"{option} {path!r} must lie in the folder of the code")
    if not PurePosixPath(request.artifacts).parts:
        raise Misconfigured("--artifacts must be a folder of its own below the code")


def environment_of(settings: Sequence[str]) -> dict[str, str]:
    """Parse the NAME=VALUE words of --env."""
    environment = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise Misconfigured(f"--env {setting!r} is not NAME=VALUE")
        environment[name] = value
    return environment


def new_record(request: JobRequest, digest: str, image: str, submission: str, now: float) -> JobRecord:
    return JobRecord(
        name=request.name,
        submission=submission,
        digest=digest,
        request=hashlib.sha256(request.text()).hexdigest(),
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
    """Raise GiveUp since the name is in use, unless the existing job is this one, interrupted while launching."""
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
    """The content of plan.json, which the nodes read."""
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


def root_volume(request: JobRequest, root: Root | None) -> list[dict[str, Any]]:
    """The root volume to launch with, as EC2 takes it. Raises GiveUp where the image does not fit on --disk."""
    if root is None:
        if request.disk:
            raise GiveUp(f"--disk {request.disk}: the image {request.image} has no root volume; take another image")
        return []
    if request.disk and request.disk < root.gib:
        raise GiveUp(f"--disk {request.disk} is less than the image needs: give at least {root.gib} (GiB), or none")
    volume = {"VolumeSize": request.disk or root.gib + ROOM_GIB, "VolumeType": "gp3", "DeleteOnTermination": True}
    return [{"DeviceName": root.device, "Ebs": volume}]


def launch_fields(
    request: JobRequest, run: str, image: str, user_data: str, volumes: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The fields of the single RunInstances call: all nodes or none, and never twice."""
    tags = {
        "NAME": request.name,
        "JOB_ID": request.name,
        "NUM_NODES": str(request.nodes),
        "MASTER_PORT": str(request.port),
        JOB_TAG: request.name,
    }
    tag_list = [{"Key": key, "Value": value} for key, value in tags.items()]
    fields: dict[str, Any] = {
        "ClientToken": client_token(run),
        "MinCount": request.nodes,
        "MaxCount": request.nodes,
        "ImageId": image,
        "InstanceType": request.instance_type,
        "UserData": user_data,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled", "InstanceMetadataTags": "enabled"},
        "TagSpecifications": [{"ResourceType": kind, "Tags": tag_list} for kind in ("instance", "volume")],
    }
    if volumes:
        fields["BlockDeviceMappings"] = list(volumes)
    if request.profile:
        fields["IamInstanceProfile"] = (
            {"Arn": request.profile} if request.profile.startswith("arn:") else {"Name": request.profile}
        )
    if request.placement_group:
        fields["Placement"] = {"GroupName": request.placement_group}
    if request.security_group:
        fields["SecurityGroupIds"] = [request.security_group]
    if request.subnet:
        fields["SubnetId"] = request.subnet
    if request.spot:
        fields["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
        }
    return fields
