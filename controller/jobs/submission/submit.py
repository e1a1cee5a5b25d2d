"""Launches a job, in an order that leaves no machine running without a record.

1. write the record, by which the resync finds machines that are launched afterwards
2. upload code and plan into the bucket
3. claim the record, so that only one of two submits continues; call RunInstances once for all nodes, with the run's
   client token
4. tag the machines with the master's address, for which the nodes wait
5. set the record's state to RUNNING

If AWS refuses a step up to 3, no record remains, unless another submit has claimed it. After a later crash, repeating
the submit command continues the work and does nothing twice. If nobody repeats the submit command, the resync ends the
machines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dyntrain.controller.contract import job_files as files
from dyntrain.controller.contract.errors import ControllerError, GiveUp, RetryLater
from dyntrain.controller.jobs.ports import JobPorts, StoredJob
from dyntrain.controller.jobs.record import LAUNCH_SECONDS, JobRecord
from dyntrain.controller.jobs.submission.claim import claim_record, forget_job, write_record
from dyntrain.controller.jobs.submission.code import PackedCode
from dyntrain.controller.jobs.submission.feeding import command_of
from dyntrain.controller.jobs.submission.ports import Launcher, NoCapacity
from dyntrain.controller.jobs.submission.request import (
    JobRequest,
    check,
    launch_fields,
    new_record,
    plan_fields,
    refuse_used_name,
    root_volume,
)
from dyntrain.controller.jobs.submission.upload import check_upload, upload
from dyntrain.controller.jobs.submission.user_data import user_data
from dyntrain.controller.jobs.verdict import Machine

Say = Callable[[str], None]  # shows a line of progress to the user
# https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html
TAG_ATTEMPTS = 12
TAG_PAUSE_SECONDS = 5.0


@dataclass(frozen=True)
class PreparedJob:
    """A checked request for a job."""

    request: JobRequest
    packed: PackedCode | None  # the packed code; None if the code is an archive in S3
    stored: StoredJob  # the job's record; its version is 0 for a new job


def prepare(  # checks a request for a job
    ports: JobPorts, launcher: Launcher, request: JobRequest, packed: PackedCode | None, new_submission: str
) -> PreparedJob:
    """Check everything for which the request can be refused before anything is created. `new_submission` is the
    submission id to use if the job is new. Raises GiveUp.
    """
    check(request)
    check_upload(launcher, request)
    digest = request.digest(packed.digest if packed is not None else request.code)
    stored_job = ports.records.get(request.name)
    if stored_job is not None:
        refuse_used_name(stored_job.record, digest)
    if stored_job is None:
        record = new_record(request, digest, _image_of(launcher, request), new_submission, ports.clock())
        stored_job = StoredJob(record, 0)
    launcher.check_launch(_call_fields(launcher, request, stored_job.record))
    return PreparedJob(request, packed, stored_job)


def submit(ports: JobPorts, launcher: Launcher, prepared: PreparedJob, say: Say) -> Sequence[Machine]:
    """Launch the job. If GiveUp is raised, either no machine runs and the job's name is free, or the job's record
    remains and identifies the machines that may run. If RetryLater is raised, repeating the submit command continues
    the work.
    """
    request, stored_job = prepared.request, prepared.stored
    is_new_job = not stored_job.version
    if is_new_job:
        stored_job = write_record(ports, stored_job.record, stored_job)
    launch_began = False
    try:
        say(f"code and plan into s3://{request.bucket}/{request.name}/")
        upload(launcher, request, prepared.packed)
        stored_job = claim_record(ports, stored_job)
        launch_began = True
        return launch(ports, launcher, request, stored_job, say)
    except RetryLater as error:
        raise RetryLater(
            f"{error}; repeat the same command within {LAUNCH_SECONDS / 60:.0f} minutes to continue, or the controller "
            "ends what was launched"
        ) from error
    except _MachinesMayRun as error:
        raise error.why from error
    except ControllerError:
        if is_new_job:
            forget_job(ports, launcher, stored_job)
        raise
    except KeyboardInterrupt:
        if is_new_job and not launch_began:
            forget_job(ports, launcher, stored_job)
        raise


def resubmit(ports: JobPorts, launcher: Launcher, name: str, say: Say) -> Sequence[Machine]:
    """Launch the next attempt of a job that has ended, or continue an interrupted launch of that attempt. The saved
    artifacts of the job are restored on the new machines.

    If RetryLater is raised, the same call can be repeated. If AWS lacks capacity for the machines, the job's state
    stays unchanged.
    """
    previous_job = ports.records.get(name)
    if previous_job is None:
        raise GiveUp(f"there is no job {name!r}")
    previous_record = previous_job.record
    if previous_record.elastic:
        raise GiveUp(f"the job {name} is a cluster, which cannot be resubmitted: submit it again under another name")
    was_interrupted = previous_record.state == "LAUNCHING" and previous_record.attempt > 1
    if not (previous_record.ended or was_interrupted):
        raise GiveUp(f"the job {name} is {previous_record.state}; it can be resubmitted when it has ended")
    request = stored_request(launcher, previous_record)
    if was_interrupted:
        record, stored_job = previous_record, claim_record(ports, previous_job)
        previous_record = previous_record.with_state("INTERRUPTED", "", ports.clock()).model_copy(
            update={"attempt": previous_record.attempt - 1}
        )
    else:
        if living_machines := [
            machine for machine in ports.machines.of_runs([previous_record.token]) if machine.living
        ]:
            raise RetryLater(
                f"{len(living_machines)} machines of {name} are still saving their artifacts; try again in a minute"
            )
        now = ports.clock()
        record = previous_record.with_state("LAUNCHING", "", now).model_copy(
            update={"attempt": previous_record.attempt + 1, "since": now, "image": _image_of(launcher, request)}
        )
        stored_job = write_record(ports, record, previous_job)
    try:
        return launch(ports, launcher, request, stored_job, say)
    except RetryLater:
        raise
    except NoCapacity as error:
        write_record(
            ports,
            previous_record.model_copy(update={"reason": f"attempt {record.attempt} is not launched: {error}"}),
            stored_job,
        )
        raise RetryLater(str(error)) from error
    except _MachinesMayRun as error:
        raise error.why from error
    except ControllerError as error:
        write_record(
            ports,
            record.with_state("FAILED", f"attempt {record.attempt} could not be launched: {error}", ports.clock()),
            stored_job,
        )
        raise


class _MachinesMayRun(Exception):
    """Raised when a launch failed but machines may be running, so that the job's record must not be deleted. The resync
    terminates the running machines by means of the job's record.
    """

    def __init__(self, why: GiveUp) -> None:
        super().__init__(str(why))
        self.why = why


def launch(ports: JobPorts, launcher: Launcher, request: JobRequest, stored: StoredJob, say: Say) -> Sequence[Machine]:
    """Upload the job's plan, and launch and tag the job's machines. `launch` can safely be called again. Raises GiveUp
    if the launch failed and no machine runs. Raises _MachinesMayRun if the launch failed and machines may run.
    """
    record = stored.record
    plan_json = json.dumps(plan_fields(request, record, command_of(request, launcher.region)), indent=1).encode()
    launcher.put(request.bucket, files.plan_key(request.name, record.run), plan_json)
    machines = sorted(launcher.launch(_call_fields(launcher, request, record)), key=lambda machine: machine.rank)
    for machine in machines:
        say(f"rank {machine.rank}: {machine.instance}")
    if ended_instances := [
        machine.instance for machine in machines if machine.state in ("shutting-down", "terminated")
    ]:
        raise RetryLater(f"{', '.join(ended_instances)} ended meanwhile")
    instance_ids = [machine.instance for machine in machines]
    try:
        _tag(launcher, instance_ids, {"MASTER_ADDR": machines[0].address or ""})
        for machine in machines:
            _tag(launcher, [machine.instance], {"NAME": f"{request.name}-{machine.rank}"})
    except GiveUp as error:  # without the tags the nodes would wait in vain
        try:
            termination_result = ports.machines.terminate(instance_ids)
        except ControllerError:
            raise _MachinesMayRun(error) from error
        if termination_result.missing or termination_result.refused:
            raise _MachinesMayRun(error) from error
        raise
    write_record(ports, record.model_copy(update={"state": "RUNNING", "changed": ports.clock()}), stored)
    return machines


def _tag(launcher: Launcher, instances: Sequence[str], tags: Mapping[str, str]) -> None:
    """Tag the instances. Tagging is retried for about a minute, until EC2 knows the new instances."""
    for attempts_left in reversed(range(TAG_ATTEMPTS)):
        try:
            launcher.tag(instances, tags)
            return
        except RetryLater:
            if not attempts_left:
                raise
            launcher.pause(TAG_PAUSE_SECONDS)


def stored_request(launcher: Launcher, record: JobRecord) -> JobRequest:
    """Read the job's request from the bucket. Raises GiveUp, for example if the stored request differs from the
    submitted request.
    """
    request_json = launcher.get(record.bucket, files.request_key(record.name)) or b""
    request_address = f"s3://{record.bucket}/{files.request_key(record.name)}"
    if hashlib.sha256(request_json).hexdigest() != record.request:
        raise GiveUp(
            f"the request in {request_address} is not what was submitted; submit the job again under another name"
        )
    try:
        request_fields = json.loads(request_json)
        tuple_fields = {name: tuple(request_fields.get(name, ())) for name in ("command", "channels")}
        request = JobRequest(**{**request_fields, **tuple_fields})
    except (KeyError, TypeError, ValueError) as error:
        raise GiveUp(
            f"the request in {request_address} was written by another version of dyntrain: {error!r}"
        ) from error
    check(request)
    return request


def _image_of(launcher: Launcher, request: JobRequest) -> str:
    return request.image or launcher.image_for(request.instance_type)


def _call_fields(launcher: Launcher, request: JobRequest, record: JobRecord) -> dict[str, object]:
    user_data_script = user_data(request.name, record.run, request.bucket, launcher.region, request.max_hours)
    volumes = root_volume(request, launcher.root_volume_of(record.image))
    return launch_fields(request, record.run, record.image, user_data_script, volumes)
