"""Submit, show and end elastic jobs, each of which is a cluster: `dyntrain job submit --elastic`."""

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
from dyntrain.controller.cli.shell.connection import connect, stage_of_command
from dyntrain.controller.cli.shell.options import width_of_terminal
from dyntrain.controller.cli.shell.place import say_where
from dyntrain.controller.cli.shell.waiting import waiting
from dyntrain.controller.cli.text.status import cluster_lines
from dyntrain.controller.cli.text.words import in_brief, printable
from dyntrain.controller.cli.text.words import size as size_of
from dyntrain.controller.contract.errors import ControllerError, GiveUp, RetryLater
from dyntrain.controller.jobs.ports import JobPorts
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.submission.code import REQUIREMENTS, pack, source_of
from dyntrain.controller.jobs.submission.elastic import (
    end_cluster,
    make_cluster,
    prepare_cluster,
)
from dyntrain.controller.jobs.submission.elastic_request import ClusterSettings, check_elastic, elastic_phase
from dyntrain.controller.jobs.submission.ports import Stack
from dyntrain.controller.jobs.submission.request import JobRequest
from dyntrain.controller.jobs.verdict import Phase

FOLLOW_SECONDS = 2.0
START_SECONDS = 4500.0  # 55 minutes for the stack's wait condition, 20 for the nodes
OVER: tuple[Phase, ...] = ("RUNNING", "SUCCEEDED", "FAILED", "STOPPED", "ENDING")


@dataclass(frozen=True)
class ElasticJobState:
    """The state of an elastic job. `cluster`: the data of `dyntrain status`; None while no cluster is registered."""

    record: JobRecord
    phase: Phase
    reason: str
    stack: Stack | None
    cluster: dict[str, Any] | None


def submit_elastic(
    ports: JobPorts,
    launcher: AwsLauncher,
    request: JobRequest,
    typed: Sequence[str],
    package: str,
    key_name: str,
    *,
    yes: bool,
) -> None:
    """Submit the job and return once the job trains. `typed`: names of the options that were typed."""
    check_elastic(request, typed)
    request = replace(request, env={**request.env, **channel_variables(request.channels)})
    stage = stage_of_command()
    if stage.name is None:
        raise GiveUp("a cluster belongs to a stage: give --stage or DYNTRAIN_STAGE")
    is_local = source_of(request.code) is None
    packed = pack(Path(request.code)) if is_local else None
    connection, stacks = connect(stage), _stacks(launcher)
    wheel = package or f"s3://{request.bucket}/dyntrain-{version('dyntrain')}-py3-none-any.whl"
    with waiting("asking AWS whether this can be done"):
        registered = request.name in connection.ports.parameters.policies()
        wanted = ClusterSettings(stage.name, wheel, key_name, common_folder(request.channels))
        prepared = prepare_cluster(
            ports, launcher, stacks, request, packed, wanted, secrets.token_hex(6), registered=registered
        )
        price = launcher.price(request.instance_type, spot=False)
    size = f"{packed.files} files, {size_of(len(packed.content))}" if packed is not None else request.code
    say_where(f"job {request.name}, stage {stage.name}", launcher.clients)
    click.echo(_description(request, wheel, size, price))
    if prepared.warning:
        click.echo(f"Warning: {prepared.warning}", err=True)
    if is_local and (Path(request.code) / REQUIREMENTS).is_file():
        click.echo(f"Warning: {REQUIREMENTS} is not installed; a prepare-data.py in the code can do that", err=True)
    if not yes and not click.confirm("Create the cluster?", default=False):
        raise GiveUp("the cluster was not created")
    make_cluster(ports, launcher, stacks, prepared, _say)
    _follow(ports, stacks, connection, request.name)


def status_of(ports: JobPorts, launcher: AwsLauncher, name: str, output: str) -> str:
    cluster = _read_state(ports, _stacks(launcher), connect(stage_of_command()), name)
    record, stack = cluster.record, cluster.stack
    if output == "json":
        status_fields = {"phase": cluster.phase, "why": cluster.reason, "cluster": cluster.cluster}
        return json.dumps({**record.model_dump(mode="json"), **status_fields, "stack": stack and stack.id}, indent=1)
    lines = [
        f"{name} {cluster.phase}{f': {cluster.reason}' if cluster.reason else ''}",
        f"  a cluster of {record.nodes} base nodes, code in s3://{record.bucket}/{name}/",
        f"  stack {stack.id if stack else '-'}, volume {(stack and stack.file_system) or '-'}",
    ]
    lines = [printable(line) for line in lines]
    if cluster.cluster is not None:
        width = None if output == "wide" else width_of_terminal()
        lines += cluster_lines(cluster.cluster, time.time(), width, wide=output == "wide")
    if output == "wide":
        lines += [printable(f"  {key}: {json.dumps(value)}") for key, value in record.model_dump(mode="json").items()]
    return "\n".join(lines)


def elastic_states(ports: JobPorts, launcher: AwsLauncher, names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Phase and reason of each of these elastic jobs, as in `job status`. A job that cannot be read has the phase
    UNKNOWN.
    """
    stacks, connection = _stacks(launcher), connect(stage_of_command())
    states: dict[str, tuple[str, str]] = {}
    for name in names:
        try:
            cluster = _read_state(ports, stacks, connection, name)
            states[name] = (cluster.phase, cluster.reason)
        except ControllerError as error:
            states[name] = ("UNKNOWN", str(error))
    return states


def stop_elastic(ports: JobPorts, launcher: AwsLauncher, name: str) -> None:
    parameters = connect(stage_of_command()).ports.parameters
    stack = end_cluster(ports, launcher, _stacks(launcher), name, lambda: parameters.delete(name), _say)
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


def _stacks(launcher: AwsLauncher) -> AwsStacks:
    template = files("dyntrain.node_bootstrap").joinpath("cluster.template.yaml").read_text(encoding="utf-8")
    return AwsStacks(launcher.clients, template)


def _read_state(ports: JobPorts, stacks: AwsStacks, connection: Connection, name: str) -> ElasticJobState:
    record = stored_job(ports, name).record
    stack = None if record.ended else stacks.stack(name)
    cluster = None
    if stack is not None and stack.submission == record.submission:
        try:
            cluster = summary(snapshot(connection.ports, connection.registry, name, connection.elastic))
        except GiveUp:
            cluster = None  # the stack has not created the policy yet
    job = cluster["job"] if cluster is not None else None
    state, job_reason = (job["state"], in_brief(job["reason"])) if job is not None else (None, "")
    phase, reason = elastic_phase(record, stack, state, job_reason)
    return ElasticJobState(record, phase, reason, stack, cluster)


def _follow(ports: JobPorts, stacks: AwsStacks, connection: Connection, name: str) -> None:
    """Print the progress until the job trains. Raises GiveUp when the job fails or takes too long."""
    printed_lines: set[str] = set()
    deadline = time.monotonic() + START_SECONDS
    while True:
        with suppress(RetryLater):  # AWS is unreachable for a moment
            cluster = _read_state(ports, stacks, connection, name)
            for line in progress_lines(cluster):
                if line not in printed_lines:
                    printed_lines.add(line)
                    _say(line)
            if cluster.phase in OVER:
                break
        if time.monotonic() > deadline:
            raise GiveUp(f"{name} does not train yet; `dyntrain job status {name}` shows its state")
        time.sleep(FOLLOW_SECONDS)
    if cluster.phase not in ("RUNNING", "SUCCEEDED"):
        status_hint = f"`dyntrain job status {name}` says more"
        raise GiveUp(f"{name} is {cluster.phase}; {status_hint}, `dyntrain job stop {name}` deletes the stack")
    click.echo(
        f"the job is a cluster: `dyntrain scale {name} N`, `dyntrain logs {name} -f`, `dyntrain job stop {name}`"
    )


def progress_lines(cluster: ElasticJobState) -> list[str]:
    """A line for each node, with the reason of a failed preparation, and a line for the job. Pure."""
    nodes = cluster.cluster["nodes"] if cluster.cluster is not None else []
    lines = []
    for node in nodes:
        problem = in_brief(node["detail"] or node["sentence"]) if node["status"] == "PREPARE_FAILED" else ""
        lines.append(f"{node['instance']}: {node['status']}{f': {problem}' if problem else ''}")
    return [*lines, f"{cluster.phase}: {cluster.reason}" if cluster.reason else cluster.phase]


def _description(request: JobRequest, package: str, size: str, price: float | None) -> str:
    """Describe what will be created, and the price."""
    each = f", {request.workers_per_node} times on each node" if request.workers_per_node > 1 else ""
    lines = [
        f"job {request.name}: a cluster of {request.nodes} base nodes of type {request.instance_type}, one of them "
        "the master, as the stack of that name",
        f"  runs        {printable(' '.join(request.command))}{each}",
        f"  code        {size}, into s3://{request.bucket}/{request.name}/",
        f"  installs    {package}",
        "  ends        when you stop it; nothing else ends it",
        f"  try first   dyntrain check -- {printable(' '.join(request.command))} (here, nothing is rented)",
    ]
    if price is not None:
        lines.append(
            f"  costs       {price * request.nodes:.2f} dollars an hour; disks, volume, NAT gateway, addresses and "
            "what you add besides"
        )
    return "\n".join(lines)


def _say(text: str) -> None:
    click.echo(printable(text))
