"""Submit, show and stop elastic jobs (`dyntrain job submit --elastic`). Each elastic job is a cluster."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
from dyntrain.controller.adapters.stacks import AwsStacks
from dyntrain.controller.adapters.submission import AwsLauncher
from dyntrain.controller.cli.answers.connection import Connection
from dyntrain.controller.cli.answers.query import snapshot, summary
from dyntrain.controller.cli.commands.job.data import channel_variables, common_folder
from dyntrain.controller.cli.commands.job.jobs import stored_job
from dyntrain.controller.cli.shell.connection import connect_to_stage, stage_of_command
from dyntrain.controller.cli.shell.options import width_of_terminal
from dyntrain.controller.cli.shell.place import say_where
from dyntrain.controller.cli.shell.waiting import waiting
from dyntrain.controller.cli.text.status import cluster_lines
from dyntrain.controller.cli.text.words import in_brief, printable, size_text
from dyntrain.controller.contract.errors import ControllerError, GiveUp, RetryLater
from dyntrain.controller.jobs.ports import JobPorts
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.submission.code import REQUIREMENTS, pack, source_of
from dyntrain.controller.jobs.submission.elastic import end_cluster, make_cluster, prepare_cluster
from dyntrain.controller.jobs.submission.elastic_request import ClusterSettings, check_elastic, elastic_phase
from dyntrain.controller.jobs.submission.ports import Stack
from dyntrain.controller.jobs.submission.request import JobRequest
from dyntrain.controller.jobs.verdict import Phase

FOLLOW_SECONDS = 2.0  # between two reads of a job's state
START_SECONDS = 4500.0  # 55 minutes for the stack's wait condition, 20 for the nodes
AWAITED_PHASES: tuple[Phase, ...] = ("RUNNING", "SUCCEEDED", "FAILED", "STOPPED", "ENDING")  # `submit` waits for one


@dataclass(frozen=True)
class ElasticJobState:
    """The state of an elastic job and of its cluster."""

    record: JobRecord
    phase: Phase  # of the job
    reason: str  # of the phase
    stack: Stack | None  # the cluster's CloudFormation stack
    cluster: dict[str, Any] | None  # the data of `dyntrain status`, or None while no cluster is registered


def submit_elastic_job(
    ports: JobPorts,
    launcher: AwsLauncher,
    request: JobRequest,
    typed_options: Sequence[str],
    package: str,
    key_name: str,
    *,
    yes: bool,
) -> None:
    """Submit the elastic job, and wait until the job trains. `typed_options` are the names of the options that the
    user gave.
    """
    check_elastic(request, typed_options)
    request = replace(request, env={**request.env, **channel_variables(request.channels)})
    stage = stage_of_command()
    if stage.name is None:
        raise GiveUp("a cluster belongs to a stage: give --stage or DYNTRAIN_STAGE")
    is_local_code = source_of(request.code) is None
    packed_code = pack(Path(request.code)) if is_local_code else None
    stage_connection, stacks = connect_to_stage(stage), _cluster_stacks(launcher)
    wheel_address = package or f"s3://{request.bucket}/dyntrain-{version('dyntrain')}-py3-none-any.whl"
    with waiting("asking AWS whether this can be done"):
        is_registered = request.name in stage_connection.ports.parameters.policies()
        cluster_settings = ClusterSettings(stage.name, wheel_address, key_name, common_folder(request.channels))
        prepared_cluster = prepare_cluster(
            ports,
            launcher,
            stacks,
            request,
            packed_code,
            cluster_settings,
            secrets.token_hex(6),
            registered=is_registered,
        )
        hourly_price = launcher.price(request.instance_type, spot=False)
    code_size = (
        f"{packed_code.files} files, {size_text(len(packed_code.content))}" if packed_code is not None else request.code
    )
    say_where(f"job {request.name}, stage {stage.name}", launcher.clients)
    click.echo(_cluster_description(request, wheel_address, code_size, hourly_price))
    if prepared_cluster.warning:
        click.echo(f"Warning: {prepared_cluster.warning}", err=True)
    if is_local_code and (Path(request.code) / REQUIREMENTS).is_file():
        click.echo(f"Warning: {REQUIREMENTS} is not installed; a prepare-data.py in the code can do that", err=True)
    if not yes and not click.confirm("Create the cluster?", default=False):
        raise GiveUp("the cluster was not created")
    make_cluster(ports, launcher, stacks, prepared_cluster, _print_line)
    _follow_job_start(ports, stacks, stage_connection, request.name)


def job_status_text(ports: JobPorts, launcher: AwsLauncher, name: str, output: str) -> str:
    job_state = _read_state(ports, _cluster_stacks(launcher), connect_to_stage(stage_of_command()), name)
    record, stack = job_state.record, job_state.stack
    if output == "json":
        status_fields = {"phase": job_state.phase, "why": job_state.reason, "cluster": job_state.cluster}
        return json.dumps({**record.model_dump(mode="json"), **status_fields, "stack": stack and stack.id}, indent=1)
    lines = [
        f"{name} {job_state.phase}{f': {job_state.reason}' if job_state.reason else ''}",
        f"  a cluster of {record.nodes} base nodes, code in s3://{record.bucket}/{name}/",
        f"  stack {stack.id if stack else '-'}, volume {(stack and stack.file_system) or '-'}",
    ]
    lines = [printable(line) for line in lines]
    if job_state.cluster is not None:
        width = None if output == "wide" else width_of_terminal()
        lines += cluster_lines(job_state.cluster, time.time(), width, wide=output == "wide")
    if output == "wide":
        lines += [printable(f"  {key}: {json.dumps(value)}") for key, value in record.model_dump(mode="json").items()]
    return "\n".join(lines)


def elastic_job_states(ports: JobPorts, launcher: AwsLauncher, names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The phase of each named elastic job with the reason for the phase, as in `dyntrain job status`. A job whose state
    cannot be read has the phase UNKNOWN.
    """
    stacks, stage_connection = _cluster_stacks(launcher), connect_to_stage(stage_of_command())
    phases_and_reasons: dict[str, tuple[str, str]] = {}
    for name in names:
        try:
            job_state = _read_state(ports, stacks, stage_connection, name)
            phases_and_reasons[name] = (job_state.phase, job_state.reason)
        except ControllerError as error:
            phases_and_reasons[name] = ("UNKNOWN", str(error))
    return phases_and_reasons


def stop_elastic_job(ports: JobPorts, launcher: AwsLauncher, name: str) -> None:
    parameters = connect_to_stage(stage_of_command()).ports.parameters
    stack = end_cluster(ports, launcher, _cluster_stacks(launcher), name, lambda: parameters.delete(name), _print_line)
    if stack is None:
        click.echo(f"{name} has ended already")
        return
    bucket = stored_job(ports, name).record.bucket
    click.echo(f"{name}: its machines, network, logs and parameters are gone; its code is in s3://{bucket}/{name}/")
    if stack.file_system:
        click.echo(
            f"Kept, with all that was saved, and billed by what is stored: the volume {stack.file_system}; "
            f"aws efs delete-file-system --file-system-id {stack.file_system}"
        )


def _cluster_stacks(launcher: AwsLauncher) -> AwsStacks:
    template_text = files("dyntrain.node_bootstrap").joinpath("cluster.template.yaml").read_text(encoding="utf-8")
    return AwsStacks(launcher.clients, template_text)


def _read_state(ports: JobPorts, stacks: AwsStacks, connection: Connection, name: str) -> ElasticJobState:
    record = stored_job(ports, name).record
    stack = None if record.ended else stacks.stack(name)
    cluster_data = None
    if stack is not None and stack.submission == record.submission:
        try:
            cluster_data = summary(snapshot(connection.ports, connection.registry, name, connection.elastic))
        except GiveUp:
            cluster_data = None  # the stack has not created the policy yet
    job_data = cluster_data["job"] if cluster_data is not None else None
    job_status, job_reason = (job_data["state"], in_brief(job_data["reason"])) if job_data is not None else (None, "")
    phase, reason = elastic_phase(record, stack, job_status, job_reason)
    return ElasticJobState(record, phase, reason, stack, cluster_data)


def _follow_job_start(ports: JobPorts, stacks: AwsStacks, connection: Connection, name: str) -> None:
    """Print the elastic job's progress until the job trains. Raises GiveUp if the job fails, or does not train within
    START_SECONDS.
    """
    printed_lines: set[str] = set()
    deadline = time.monotonic() + START_SECONDS
    while True:
        with suppress(RetryLater):  # AWS is unreachable for a moment
            job_state = _read_state(ports, stacks, connection, name)
            for line in progress_lines(job_state):
                if line not in printed_lines:
                    printed_lines.add(line)
                    _print_line(line)
            if job_state.phase in AWAITED_PHASES:
                break
        if time.monotonic() > deadline:
            raise GiveUp(f"{name} does not train yet; `dyntrain job status {name}` shows its state")
        time.sleep(FOLLOW_SECONDS)
    if job_state.phase not in ("RUNNING", "SUCCEEDED"):
        status_hint = f"`dyntrain job status {name}` says more"
        raise GiveUp(f"{name} is {job_state.phase}; {status_hint}, `dyntrain job stop {name}` deletes the stack")
    click.echo(
        f"the job is a cluster: `dyntrain scale {name} N`, `dyntrain logs {name} -f`, `dyntrain job stop {name}`"
    )


def progress_lines(job_state: ElasticJobState) -> list[str]:
    """Text lines with the status of each node and the phase of the job, including the reasons of failures. Pure."""
    node_rows = job_state.cluster["nodes"] if job_state.cluster is not None else []
    node_lines = []
    for node in node_rows:
        prepare_failure = in_brief(node["detail"] or node["sentence"]) if node["status"] == "PREPARE_FAILED" else ""
        node_lines.append(f"{node['instance']}: {node['status']}{f': {prepare_failure}' if prepare_failure else ''}")
    return [*node_lines, f"{job_state.phase}: {job_state.reason}" if job_state.reason else job_state.phase]


def _cluster_description(request: JobRequest, package: str, size: str, price: float | None) -> str:
    """Describe the cluster that the job will create, with the cluster's price."""
    repetition_text = f", {request.workers_per_node} times on each node" if request.workers_per_node > 1 else ""
    description_lines = [
        f"job {request.name}: a cluster of {request.nodes} base nodes of type {request.instance_type}, one of them "
        "the master, as the stack of that name",
        f"  runs        {printable(' '.join(request.command))}{repetition_text}",
        f"  code        {size}, into s3://{request.bucket}/{request.name}/",
        f"  installs    {package}",
        "  ends        when you stop it; nothing else ends it",
        f"  try first   dyntrain check -- {printable(' '.join(request.command))} (here, nothing is rented)",
    ]
    if price is not None:
        description_lines.append(
            f"  costs       {price * request.nodes:.2f} dollars an hour; disks, volume, NAT gateway, addresses and "
            "what you add besides"
        )
    return "\n".join(description_lines)


def _print_line(text: str) -> None:
    click.echo(printable(text))
