"""Creates and ends a job that is a cluster: a CloudFormation stack from the template that people also deploy by hand.

1. write the record, so that `stop` finds everything that is created afterwards
2. upload the code into the bucket
3. claim the record, so that only one of two submits continues; create the stack with a tag that names the submission
4. set the record's state to RUNNING

If AWS refuses step 2 or 3, no record remains. After a crash, repeating the submit command continues the work and
creates nothing twice. `dyntrain job stop` ends the job after any of these steps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dyntrain.controller.contract import job_files as files
from dyntrain.controller.contract.errors import Conflict, ControllerError, GiveUp, Misconfigured, Refused, RetryLater
from dyntrain.controller.contract.gpu_families import cannot_be_a_node, unknown_gpu_warning
from dyntrain.controller.jobs.ports import JobPorts, StoredJob
from dyntrain.controller.jobs.submission.claim import claim_record, forget_job, write_record
from dyntrain.controller.jobs.submission.code import PackedCode, source_of
from dyntrain.controller.jobs.submission.elastic_request import ClusterSettings, parameters_of
from dyntrain.controller.jobs.submission.ports import Launcher, Stack, Stacks
from dyntrain.controller.jobs.submission.request import JobRequest, new_record, refuse_used_name
from dyntrain.controller.jobs.submission.submit import Say
from dyntrain.controller.jobs.submission.upload import check_upload, upload
from dyntrain.controller.loops.registry import CACHE_SECONDS

STOP_SECONDS = 3600.0  # time limit for ending a cluster
POLL_SECONDS = 2.0  # between two looks at the stack
CONTROLLER_FORGETS_SECONDS = CACHE_SECONDS + 5.0  # after this the controller writes no targets of a removed cluster


@dataclass(frozen=True)
class PreparedCluster:
    """A checked request for a cluster."""

    request: JobRequest
    packed: PackedCode | None  # the packed code; None if the code is an archive in S3
    stored: StoredJob  # the job's record; its version is 0 for a new job
    parameters: Mapping[str, str]  # of the cluster's template
    warning: str = ""  # a possible problem that cannot be checked beforehand


def prepare_cluster(
    ports: JobPorts,
    launcher: Launcher,
    stacks: Stacks,
    request: JobRequest,
    packed: PackedCode | None,
    wanted: ClusterSettings,
    new_submission: str,
    registered: bool,
) -> PreparedCluster:
    """Check everything for which the request can be refused before anything is created. `registered` says that a
    cluster with the job's name is already registered. Raises GiveUp.
    """
    check_upload(launcher, request)
    hardware = stacks.hardware(request.instance_type)
    if not hardware.x86:
        raise GiveUp(
            f"a cluster's nodes must be x86_64, for which MXNet is built; {request.instance_type} is not x86_64"
        )
    if node_problem := cannot_be_a_node(request.instance_type):
        raise GiveUp(node_problem)
    _check_package(launcher, wanted.package)
    key_pair_names = stacks.key_pairs()
    if wanted.key_name not in key_pair_names and (wanted.key_name or len(key_pair_names) != 1):
        key_pair_list = ", ".join(sorted(key_pair_names)) or "none; aws ec2 create-key-pair makes one"
        raise GiveUp(f"give --key-name, one of this region's key pairs ({key_pair_list}), for SSH to the master")
    parameters = parameters_of(request, replace(wanted, key_name=wanted.key_name or key_pair_names[0]), hardware)
    digested_json = json.dumps([packed.digest if packed is not None else request.code, parameters], sort_keys=True)
    digest = request.digest(hashlib.sha256(digested_json.encode()).hexdigest())
    known_job, stack = ports.records.get(request.name), stacks.stack(request.name)
    if known_job is not None:
        refuse_used_name(known_job.record, digest)
        if not known_job.record.elastic:
            raise GiveUp(f"the name {request.name} is in use: its job is being launched")
    own_submission = known_job.record.submission if known_job is not None else None
    if (stack is not None and stack.submission != own_submission) or (stack is None and registered):
        raise GiveUp(f"the name {request.name} is in use: there is a cluster or a stack {request.name}")
    record = new_record(request, digest, "", new_submission, ports.clock()).model_copy(update={"elastic": True})
    warning = unknown_gpu_warning(request.instance_type) if hardware.nvidia else ""
    return PreparedCluster(request, packed, known_job or StoredJob(record, 0), parameters, warning)


def make_cluster(ports: JobPorts, launcher: Launcher, stacks: Stacks, prepared: PreparedCluster, say: Say) -> None:
    """Upload the code and request the cluster's stack. The function returns once CloudFormation has begun to create the
    stack.

    If GiveUp is raised, either nothing exists and the job's name is free, or the job's record remains and identifies
    what may exist. If RetryLater is raised, repeating the submit command continues the work.
    """
    request, stored_job = prepared.request, prepared.stored
    is_new_job = not stored_job.version
    if is_new_job:
        stored_job = write_record(ports, stored_job.record, stored_job)
    name, bucket = request.name, request.bucket
    code_key = files.code_key(name)
    try:
        say(f"code into s3://{bucket}/{code_key}")
        upload(launcher, request, prepared.packed)
        stored_job = claim_record(ports, stored_job)
        stack = stacks.stack(name)  # of this submission, or the name would have been refused
        stack_id = (
            stack.id if stack is not None else stacks.create(name, prepared.parameters, stored_job.record.submission)
        )
    except (RetryLater, KeyboardInterrupt):
        say(f"`dyntrain job stop {name}` ends what may have been made; repeat the command to continue")
        raise
    except ControllerError:
        if is_new_job:
            forget_job(ports, launcher, stored_job)
        raise
    say(f"stack {stack_id}")
    try:
        write_record(ports, stored_job.record.with_state("RUNNING", "", ports.clock()), stored_job)
    except Conflict as error:
        raise GiveUp(
            f"the job {name} was stopped meanwhile; repeat `dyntrain job stop {name}` to end its stack"
        ) from error


def end_cluster(
    ports: JobPorts, launcher: Launcher, stacks: Stacks, name: str, unregister: Callable[[], object], say: Say
) -> Stack | None:
    """Terminate the cluster's machines, delete the cluster's stack, and then call `unregister`, which deletes the
    cluster's remaining parameters. Returns the stack that was deleted, or None if there was no stack. `end_cluster` can
    be interrupted and called again. Raises GiveUp, for example if ending the cluster takes longer than STOP_SECONDS.
    """
    stored_job = ports.records.get(name)
    stack = stacks.stack(name)
    if stored_job is None or not stored_job.record.elastic:
        raise GiveUp(f"there is no elastic job {name!r}")
    if stack is not None and stack.submission != stored_job.record.submission:
        raise GiveUp(f"the stack {name} was not made for this job, so nothing was ended")
    if stack is not None:
        _delete_stack(ports, launcher, stacks, name, stack, say)
        say("waiting until the controller has forgotten the cluster")
        launcher.pause(CONTROLLER_FORGETS_SECONDS)
    if stack is not None or not stored_job.record.ended:  # otherwise another cluster may have the name by now
        unregister()
    if not stored_job.record.ended:
        write_record(ports, stored_job.record.with_state("STOPPED", "stopped by hand", ports.clock()), stored_job)
    return stack


def _delete_stack(ports: JobPorts, launcher: Launcher, stacks: Stacks, name: str, existing: Stack, say: Say) -> None:
    """Terminate the machines before deleting the stack, because running machines write to resources of the stack."""
    stack: Stack | None = existing
    shown_step, deadline, deletion_requested = "", ports.clock() + STOP_SECONDS, False
    while stack is not None:
        running_count = stacks.end_machines(name)  # repeated, since a stack in creation may have made another group
        if deletion_requested and stack.status == "DELETE_FAILED":
            raise GiveUp(
                f"the stack {name} was not deleted completely: {stack.reason}; remove the cause, then stop it again"
            )
        if not running_count and stack.status != "DELETE_IN_PROGRESS":
            stacks.delete(name)
            deletion_requested = True
        stack = stacks.stack(name)
        step_text = f"{running_count} machines end" if running_count else "the stack is deleted"
        if step_text != shown_step:
            shown_step = step_text
            say(step_text)
        if stack is not None:
            if ports.clock() >= deadline:
                raise GiveUp(
                    f"ending {name} takes longer than {STOP_SECONDS / 60:.0f} minutes ({step_text}); repeat the command"
                )
            launcher.pause(POLL_SECONDS)


def _check_package(launcher: Launcher, package: str) -> None:
    package_source = source_of(package)
    if package_source is None:
        raise Misconfigured(f"--package {package!r} is not s3://BUCKET/KEY of a wheel")
    try:
        launcher.size(*package_source)
    except Refused as error:
        raise GiveUp(
            f"the package {package} cannot be read ({error.code}), and the nodes need it: build it with `make wheel` "
            "and copy it there, or name another package by --package"
        ) from error
