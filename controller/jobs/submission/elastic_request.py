"""Functions for a job that runs as a cluster: the checks of the job's request before AWS is called, the parameters of
the CloudFormation template, and the job's phase. Pure.
"""

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

MAX_NODES = 33  # as many as the template's mapping of workers allows, and the master
MIN_DISK_GIB = 20  # as in the cluster's template
DEFAULT_MAX_WORKERS = 16  # MaxWorkers in the template
# Size limit of command and variables in SSM's standard parameter, besides the node's other settings
# https://docs.aws.amazon.com/systems-manager/latest/userguide/parameter-store-advanced-parameters.html
MAX_SETTINGS_BYTES = 4096 - 1350
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
    """The settings that a cluster needs in addition to the job's request."""

    stage: str  # the controller's deployment stage
    package: str  # the wheel that nodes install, as s3://BUCKET/KEY
    key_name: str = ""  # name of the EC2 key pair for SSH
    data: tuple[str, str] = ("", "")  # bucket and folder that nodes may read


def check_elastic(request: JobRequest, typed_options: Sequence[str]) -> None:
    """Check the request. `typed_options` are the names of the options that the user typed on the command line. Raises
    Misconfigured.
    """
    for option_name in typed_options:
        if option_name in UNAVAILABLE_OPTIONS:
            raise Misconfigured(
                f"--{option_name.replace('_', '-')} does not go with --elastic: {UNAVAILABLE_OPTIONS[option_name]}"
            )
    check(request)
    if not re.fullmatch(CLUSTER_NAME, request.name):
        raise Misconfigured(f"{request.name!r} is no cluster name: use letters, digits and -, and begin with a letter")
    if request.nodes > MAX_NODES:
        raise Misconfigured(f"a cluster has at most {MAX_NODES} base nodes; add more workers with `dyntrain scale`")
    if request.disk and request.disk < MIN_DISK_GIB:
        raise Misconfigured(f"--disk {request.disk}: a cluster's nodes need at least {MIN_DISK_GIB} GiB")
    command_json = json.dumps(request.command)
    if not request.command[0] or any(character in request.command[0] for character in '"\\'):
        raise Misconfigured(f"the program {request.command[0]!r} cannot be started in a cluster")
    if "{{resolve:" in command_json + json.dumps(dict(request.env)):
        raise Misconfigured("CloudFormation would misread '{{resolve:' in the command or in --env as a reference")
    if (settings_bytes := len(command_json) + len(_node_fields(request))) > MAX_SETTINGS_BYTES:
        raise Misconfigured(
            f"command and --env have {settings_bytes} bytes, more than the {MAX_SETTINGS_BYTES} that fit into a "
            "node's configuration"
        )


def parameters_of(request: JobRequest, wanted: ClusterSettings, hardware: Hardware) -> dict[str, str]:
    """The values for the parameters of the cluster's CloudFormation template, by parameter name."""
    return {
        "Stage": wanted.stage,
        "KeyName": wanted.key_name,
        "PackageSource": wanted.package,
        "CodeSource": f"s3://{request.bucket}/{files.code_key(request.name)}",
        "TrainingCommand": json.dumps(request.command),
        "OutputLocation": f"s3://{request.bucket}/{files.artifacts_prefix(request.name)}".rstrip("/"),
        "NodeFields": _node_fields(request),
        "WorkerCount": str(request.nodes - 1),
        "MaxWorkers": str(max(DEFAULT_MAX_WORKERS, 2 * request.nodes)),
        "InstanceType": request.instance_type,
        "Accelerator": "Nvidia" if hardware.nvidia else "None",
        **({"VolumeSize": str(request.disk)} if request.disk else {}),
        **({"DataBucket": wanted.data[0], "DataPrefix": wanted.data[1]} if wanted.data[0] else {}),
    }


def elastic_phase(record: JobRecord, stack: Stack | None, job_state: str | None, why: str = "") -> tuple[Phase, str]:
    """The job's phase to show to users, and the reason for the phase. `job_state` and `why` are the job's state and the
    reason for the state in the report of the cluster's coordinator. If the coordinator has not reported, `job_state` is
    None.
    """
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
    """The command's environment variables and the number of workers on each node, as JSON without the outer braces."""
    environment = {"JOB_ID": request.name, "NUM_NODES": str(request.nodes), **request.env}
    worker_fields = {} if request.workers_per_node == 1 else {"workers_per_node": request.workers_per_node}
    return json.dumps({**worker_fields, "environment": environment})[1:-1]
