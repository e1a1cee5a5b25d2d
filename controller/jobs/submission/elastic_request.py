"""Request and parameters of a job that is a cluster, its checks before AWS is called, and its phase. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dyntrain.controller.contract import job_files as files
from dyntrain.controller.contract.errors import Misconfigured
from dyntrain.controller.contract.messages import CLUSTER_NAME
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.submission.ports import Hardware, Stack
from dyntrain.controller.jobs.submission.request import JobRequest, check
from dyntrain.controller.jobs.verdict import Phase, phase

MOST_NODES = 33  # the template's mapping of workers, and the master
LEAST_DISK = 20  # GiB, as the template has it
LEAST_MAX_WORKERS = 16  # least MaxWorkers, the template's own default
# Size limit of command and variables in SSM's standard parameter, besides the node's other settings
# https://docs.aws.amazon.com/systems-manager/latest/userguide/parameter-store-advanced-parameters.html
NODE_BYTES = 4096 - 1350
# Options that a cluster does not have, and why
UNAVAILABLE_OPTIONS = {
    "image": "the cluster's template names its images",
    "profile": "the cluster's template makes its nodes' role",
    "placement_group": "the cluster's template makes its own",
    "security_group": "the cluster's template makes its own",
    "subnet": "the cluster's template makes its own network",
    "spot": "base nodes stay: losing them costs a restart",
    "retries": "a cluster replaces the nodes that it loses",
    "max_hours": "a cluster trains until it is done, and stays until `dyntrain job stop`",
    "requirements": "a prepare-data.py in the code runs on each node first, and may install what the script needs",
    "artifacts": "the folder is job.output; with the commits it is uploaded after each epoch",
    "data_root": "its workers read S3 by job.channel",
    "wait": "a cluster stays when its training is over",
}


@dataclass(frozen=True)
class ClusterSettings:
    """What a cluster needs besides the request. `package`: the wheel that nodes install, as s3://BUCKET/KEY."""

    stage: str
    package: str
    key_name: str = ""
    data: tuple[str, str] = ("", "")  # bucket and folder that nodes may read


def check_elastic(request: JobRequest, typed_options: Sequence[str]) -> None:
    """Check the request. `typed_options`: the names of the options that were typed. Raises Misconfigured."""
    for name in typed_options:
        if name in UNAVAILABLE_OPTIONS:
            raise Misconfigured(f"--{name.replace('_', '-')} does not go with --elastic: {UNAVAILABLE_OPTIONS[name]}")
    check(request)
    if not re.fullmatch(CLUSTER_NAME, request.name):
        raise Misconfigured(f"{request.name!r} is no name of a cluster: letters, digits and -, first a letter")
    if request.nodes > MOST_NODES:
        raise Misconfigured(f"a cluster has at most {MOST_NODES} base nodes; more workers come with `dyntrain scale`")
    if request.disk and request.disk < LEAST_DISK:
        raise Misconfigured(f"--disk {request.disk}: a cluster's nodes need at least {LEAST_DISK} GiB")
    command = json.dumps(request.command)
    if not request.command[0] or any(mark in request.command[0] for mark in '"\\'):
        raise Misconfigured(f"the program {request.command[0]!r} cannot be started in a cluster")
    if "{{resolve:" in command + json.dumps(dict(request.env)):
        raise Misconfigured("CloudFormation would take '{{resolve:' in the command or a variable for a reference")
    if (size := len(command) + len(_node_fields(request))) > NODE_BYTES:
        raise Misconfigured(
            f"command and --env have {size} bytes, more than the {NODE_BYTES} that fit into a node's configuration"
        )


def parameters_of(request: JobRequest, wanted: ClusterSettings, hardware: Hardware) -> dict[str, str]:
    """The parameters of the cluster's template."""
    return {
        "Stage": wanted.stage,
        "KeyName": wanted.key_name,
        "PackageSource": wanted.package,
        "CodeSource": f"s3://{request.bucket}/{files.code_key(request.name)}",
        "TrainingCommand": json.dumps(request.command),
        "OutputLocation": f"s3://{request.bucket}/{files.artifacts_prefix(request.name)}".rstrip("/"),
        "NodeFields": _node_fields(request),
        "WorkerCount": str(request.nodes - 1),
        "MaxWorkers": str(max(LEAST_MAX_WORKERS, 2 * request.nodes)),
        "InstanceType": request.instance_type,
        "Accelerator": "Nvidia" if hardware.nvidia else "None",
        **({"VolumeSize": str(request.disk)} if request.disk else {}),
        **({"DataBucket": wanted.data[0], "DataPrefix": wanted.data[1]} if wanted.data[0] else {}),
    }


def elastic_phase(record: JobRecord, stack: Stack | None, job_state: str | None, why: str = "") -> tuple[Phase, str]:
    """The phase to show, and its reason. `job_state` and `why` are from the coordinator's report; None without one."""
    if record.ended:
        return phase(record, (), 0), record.reason
    if stack is None:
        return ("LAUNCHING", "") if record.state == "LAUNCHING" else ("FAILED", "its stack is gone")
    if stack.status.startswith(("CREATE_FAILED", "ROLLBACK_", "DELETE_FAILED")):
        return "FAILED", f"{stack.status}: {stack.reason}"
    if stack.status.startswith("DELETE"):
        return "ENDING", ""
    if job_state is None or job_state == "starting":
        return ("STARTING", "") if stack.status.endswith("_COMPLETE") else ("LAUNCHING", stack.status)
    if job_state == "failed":
        return "FAILED", f"the training failed: {why}" if why else "the training failed"
    return ("SUCCEEDED" if job_state == "finished" else "RUNNING"), ""


def _node_fields(request: JobRequest) -> str:
    """The command's variables and the number of workers on each node, as JSON without the outer braces."""
    environment = {"JOB_ID": request.name, "NUM_NODES": str(request.nodes), **request.env}
    workers = {} if request.workers_per_node == 1 else {"workers_per_node": request.workers_per_node}
    return json.dumps({**workers, "environment": environment})[1:-1]
