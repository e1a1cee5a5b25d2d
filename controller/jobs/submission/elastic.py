"""Creates and ends a job that is a cluster: a CloudFormation stack from the template that people also deploy by hand.

1. write the record, so that `stop` finds everything that is created afterwards
2. upload the code into the bucket
3. claim the record, so that only one of two submits continues; create the stack with a tag that names the submission
4. set the record's state to RUNNING

If AWS refuses step 2 or 3, no record remains. After a crash, the same command continues and creates nothing twice.
`stop` ends the job after any step.
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
from dyntrain.controller.jobs.submission.claim import claim_record, forget, put
from dyntrain.controller.jobs.submission.code import Packed, source_of
from dyntrain.controller.jobs.submission.elastic_request import ClusterSettings, parameters_of
from dyntrain.controller.jobs.submission.ports import Launcher, Stack, Stacks
from dyntrain.controller.jobs.submission.request import JobRequest, new_record, refuse_used_name
from dyntrain.controller.jobs.submission.submit import Say
from dyntrain.controller.jobs.submission.upload import check_upload, upload
from dyntrain.controller.loops.registry import CACHE_SECONDS

STOP_SECONDS = 3600.0
LOOK_SECONDS = 2.0
FORGET_SECONDS = CACHE_SECONDS + 5.0  # after this the controller writes no targets of a removed cluster


@dataclass(frozen=True)
class PreparedCluster:
    """A checked request. `warning` is a doubt that cannot be checked beforehand; "" for none."""

    request: JobRequest
    packed: Packed | None
    stored: StoredJob
    parameters: Mapping[str, str]
    warning: str = ""


def prepare_cluster(
    ports: JobPorts,
    launcher: Launcher,
    stacks: Stacks,
    request: JobRequest,
    packed: Packed | None,
    wanted: ClusterSettings,
    new_submission: str,
    registered: bool,
) -> PreparedCluster:
    """Check everything that can be refused before anything is created. `registered`: a cluster of the name exists.
    Raises GiveUp.
    """
    check_upload(launcher, request)
    hardware = stacks.hardware(request.instance_type)
    if not hardware.x86:
        raise GiveUp(f"a cluster's nodes are x86_64, for which MXNet is built; {request.instance_type} is not")
    if why := cannot_be_a_node(request.instance_type):
        raise GiveUp(why)
    _check_package(launcher, wanted.package)
    keys = stacks.key_pairs()
    if wanted.key_name not in keys and (wanted.key_name or len(keys) != 1):
        names = ", ".join(sorted(keys)) or "none; aws ec2 create-key-pair makes one"
        raise GiveUp(f"give --key-name, one of this region's key pairs ({names}), for SSH to the master")
    parameters = parameters_of(request, replace(wanted, key_name=wanted.key_name or keys[0]), hardware)
    content = json.dumps([packed.digest if packed is not None else request.code, parameters], sort_keys=True)
    digest = request.digest(hashlib.sha256(content.encode()).hexdigest())
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
    """Create the stack; return once CloudFormation has begun.

    After GiveUp nothing exists and the name is free, or the record names what may exist. After RetryLater, the same
    command continues.
    """
    request, stored = prepared.request, prepared.stored
    new = not stored.version
    if new:
        stored = put(ports, stored.record, stored)
    name, bucket = request.name, request.bucket
    key = files.code_key(name)
    try:
        say(f"code into s3://{bucket}/{key}")
        upload(launcher, request, prepared.packed)
        stored = claim_record(ports, stored)
        stack = stacks.stack(name)  # of this submission, or the name would have been refused
        identity = stack.id if stack is not None else stacks.create(name, prepared.parameters, stored.record.submission)
    except (RetryLater, KeyboardInterrupt):
        say(f"`dyntrain job stop {name}` ends what may have been made; repeat the command to continue")
        raise
    except ControllerError:
        if new:
            forget(ports, launcher, stored)
        raise
    say(f"stack {identity}")
    try:
        put(ports, stored.record.with_state("RUNNING", "", ports.clock()), stored)
    except Conflict as error:
        raise GiveUp(f"{name} was stopped meanwhile; `dyntrain job stop {name}` once more ends its stack") from error


def end_cluster(
    ports: JobPorts, launcher: Launcher, stacks: Stacks, name: str, unregister: Callable[[], object], say: Say
) -> Stack | None:
    """End the machines, delete the stack, then call `unregister` for the cluster's other parameters. Returns the former
    stack, None without one. Safe to interrupt and to repeat. Raises GiveUp, also after STOP_SECONDS.
    """
    stored = ports.records.get(name)
    stack = stacks.stack(name)
    if stored is None or not stored.record.elastic:
        raise GiveUp(f"there is no elastic job {name!r}")
    if stack is not None and stack.submission != stored.record.submission:
        raise GiveUp(f"the stack {name} was not made for this job; nothing is touched")
    if stack is not None:
        _delete(ports, launcher, stacks, name, stack, say)
        say("waiting until the controller has forgotten the cluster")
        launcher.pause(FORGET_SECONDS)
    if stack is not None or not stored.record.ended:  # otherwise another cluster may have the name by now
        unregister()
    if not stored.record.ended:
        put(ports, stored.record.with_state("STOPPED", "stopped by hand", ports.clock()), stored)
    return stack


def _delete(ports: JobPorts, launcher: Launcher, stacks: Stacks, name: str, existing: Stack, say: Say) -> None:
    """End the machines, then delete the stack: its deletion waits for machines, which write to its resources."""
    stack: Stack | None = existing
    shown_step, deadline, deleting = "", ports.clock() + STOP_SECONDS, False
    while stack is not None:
        running = stacks.end_machines(name)  # repeated, since a stack in creation may have made another group
        if deleting and stack.status == "DELETE_FAILED":
            raise GiveUp(
                f"the stack {name} was not deleted completely: {stack.reason}; remove the cause, then stop it again"
            )
        if not running and stack.status != "DELETE_IN_PROGRESS":
            stacks.delete(name)
            deleting = True
        stack = stacks.stack(name)
        step = f"{running} machines end" if running else "the stack is deleted"
        if step != shown_step:
            shown_step = step
            say(step)
        if stack is not None:
            if ports.clock() >= deadline:
                raise GiveUp(
                    f"the end of {name} takes longer than {STOP_SECONDS / 60:.0f} minutes ({step}); repeat the command"
                )
            launcher.pause(LOOK_SECONDS)


def _check_package(launcher: Launcher, package: str) -> None:
    source = source_of(package)
    if source is None:
        raise Misconfigured(f"--package {package!r} is not s3://BUCKET/KEY of a wheel")
    try:
        launcher.size(*source)
    except Refused as error:
        raise GiveUp(
            f"{package} cannot be read ({error.code}), and the nodes need it: build it with `make wheel` and copy it "
            "there, or name another by --package"
        ) from error
