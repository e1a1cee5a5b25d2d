"""Launches a job, in an order that leaves no machine running without a record.

1. write the record, by which the resync finds machines that are launched afterwards
2. upload code and plan into the bucket
3. claim the record, so that only one of two submits continues; call RunInstances once for all nodes, with the run's
   client token
4. tag the machines with the master's address, for which the nodes wait
5. set the record's state to RUNNING

If AWS refuses a step up to 3, no record remains, unless another submit has claimed it. After a later crash, the same
command continues and does nothing twice; otherwise the resync ends the machines.
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
from dyntrain.controller.jobs.submission.claim import claim_record, forget, put
from dyntrain.controller.jobs.submission.code import Packed
from dyntrain.controller.jobs.submission.feeding import command_of
from dyntrain.controller.jobs.submission.ports import Launcher, NoRoom
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

Say = Callable[[str], None]
# https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html
TAG_TRIES = 12
TAG_SECONDS = 5.0


@dataclass(frozen=True)
class Prepared:
    """A checked request. `packed` None: the code is an archive in S3. `stored` has version 0 for a new job."""

    request: JobRequest
    packed: Packed | None
    stored: StoredJob


def prepare(
    ports: JobPorts, launcher: Launcher, request: JobRequest, packed: Packed | None, new_submission: str
) -> Prepared:
    """Check everything that can be refused before anything is created. `new_submission` names a new submission. Raises
    GiveUp.
    """
    check(request)
    check_upload(launcher, request)
    digest = request.digest(packed.digest if packed is not None else request.code)
    stored = ports.records.get(request.name)
    if stored is not None:
        refuse_used_name(stored.record, digest)
    if stored is None:
        record = new_record(request, digest, _image(launcher, request), new_submission, ports.clock())
        stored = StoredJob(record, 0)
    launcher.check_launch(_fields(launcher, request, stored.record))
    return Prepared(request, packed, stored)


def submit(ports: JobPorts, launcher: Launcher, prepared: Prepared, say: Say) -> Sequence[Machine]:
    """Launch the job. After GiveUp no machine runs and the name is free, or the record names what may run. After
    RetryLater, the same command continues.
    """
    request, stored = prepared.request, prepared.stored
    new = not stored.version
    if new:
        stored = put(ports, stored.record, stored)
    launching = False
    try:
        say(f"code and plan into s3://{request.bucket}/{request.name}/")
        upload(launcher, request, prepared.packed)
        stored = claim_record(ports, stored)
        launching = True
        return launch(ports, launcher, request, stored, say)
    except RetryLater as error:
        raise RetryLater(
            f"{error}; repeat the same command within {LAUNCH_SECONDS / 60:.0f} minutes to go on, or the controller "
            "ends what was launched"
        ) from error
    except _MayRun as error:
        raise error.why from error
    except ControllerError:
        if new:
            forget(ports, launcher, stored)
        raise
    except KeyboardInterrupt:
        if new and not launching:
            forget(ports, launcher, stored)
        raise


def resubmit(ports: JobPorts, launcher: Launcher, name: str, say: Say) -> Sequence[Machine]:
    """Launch the next attempt of a job that has ended, or an interrupted launch. The job's artifacts are restored.

    After RetryLater, repeat the same call; without capacity the job is unchanged.
    """
    previous = ports.records.get(name)
    if previous is None:
        raise GiveUp(f"there is no job {name!r}")
    before = previous.record
    if before.elastic:
        raise GiveUp(f"the job {name} is a cluster, which is not resubmitted: submit it again under another name")
    was_interrupted = before.state == "LAUNCHING" and before.attempt > 1
    if not (before.ended or was_interrupted):
        raise GiveUp(f"the job {name} is {before.state}; it can be resubmitted when it has ended")
    request = stored_request(launcher, before)
    if was_interrupted:
        record, stored = before, claim_record(ports, previous)
        before = before.with_state("INTERRUPTED", "", ports.clock()).model_copy(update={"attempt": before.attempt - 1})
    else:
        if living_machines := [machine for machine in ports.machines.of_runs([before.token]) if machine.living]:
            raise RetryLater(
                f"{len(living_machines)} machines of {name} are still saving their artifacts; try again in a minute"
            )
        now = ports.clock()
        record = before.with_state("LAUNCHING", "", now).model_copy(
            update={"attempt": before.attempt + 1, "since": now, "image": _image(launcher, request)}
        )
        stored = put(ports, record, previous)
    try:
        return launch(ports, launcher, request, stored, say)
    except RetryLater:
        raise
    except NoRoom as error:
        put(ports, before.model_copy(update={"reason": f"attempt {record.attempt} is not launched: {error}"}), stored)
        raise RetryLater(str(error)) from error
    except _MayRun as error:
        raise error.why from error
    except ControllerError as error:
        put(
            ports,
            record.with_state("FAILED", f"attempt {record.attempt} could not be launched: {error}", ports.clock()),
            stored,
        )
        raise


class _MayRun(Exception):
    """Machines may be running: the record must stay, for the resync to end them."""

    def __init__(self, why: GiveUp) -> None:
        super().__init__(str(why))
        self.why = why


def launch(ports: JobPorts, launcher: Launcher, request: JobRequest, stored: StoredJob, say: Say) -> Sequence[Machine]:
    """Launch from an existing plan. Safe to repeat. Raises GiveUp if no machine runs, _MayRun if machines may run."""
    record = stored.record
    plan = json.dumps(plan_fields(request, record, command_of(request, launcher.region)), indent=1).encode()
    launcher.put(request.bucket, files.plan_key(request.name, record.run), plan)
    machines = sorted(launcher.launch(_fields(launcher, request, record)), key=lambda machine: machine.rank)
    for machine in machines:
        say(f"rank {machine.rank}: {machine.instance}")
    if gone := [machine.instance for machine in machines if machine.state in ("shutting-down", "terminated")]:
        raise RetryLater(f"{', '.join(gone)} ended meanwhile")
    instances = [machine.instance for machine in machines]
    try:
        _tag(launcher, instances, {"MASTER_ADDR": machines[0].address or ""})
        for machine in machines:
            _tag(launcher, [machine.instance], {"NAME": f"{request.name}-{machine.rank}"})
    except GiveUp as error:  # without the tags the nodes would wait in vain
        try:
            batch = ports.machines.terminate(instances)
        except ControllerError:
            raise _MayRun(error) from error
        if batch.missing or batch.refused:
            raise _MayRun(error) from error
        raise
    put(ports, record.model_copy(update={"state": "RUNNING", "changed": ports.clock()}), stored)
    return machines


def _tag(launcher: Launcher, instances: Sequence[str], tags: Mapping[str, str]) -> None:
    """Tag the instances, with retries for about a minute, until all of EC2 knows the new instances."""
    for tries_left in reversed(range(TAG_TRIES)):
        try:
            launcher.tag(instances, tags)
            return
        except RetryLater:
            if not tries_left:
                raise
            launcher.pause(TAG_SECONDS)


def stored_request(launcher: Launcher, record: JobRecord) -> JobRequest:
    """Read the stored request. Raises GiveUp, also if the stored request differs from the submitted one."""
    content = launcher.get(record.bucket, files.request_key(record.name)) or b""
    address = f"s3://{record.bucket}/{files.request_key(record.name)}"
    if hashlib.sha256(content).hexdigest() != record.request:
        raise GiveUp(f"{address} is not what was submitted; submit the job again under another name")
    try:
        fields = json.loads(content)
        tuples = {name: tuple(fields.get(name, ())) for name in ("command", "channels")}
        request = JobRequest(**{**fields, **tuples})
    except (KeyError, TypeError, ValueError) as error:
        raise GiveUp(f"{address} is of another version of dyntrain: {error!r}") from error
    check(request)
    return request


def _image(launcher: Launcher, request: JobRequest) -> str:
    return request.image or launcher.image_for(request.instance_type)


def _fields(launcher: Launcher, request: JobRequest, record: JobRecord) -> dict[str, object]:
    script = user_data(request.name, record.run, request.bucket, launcher.region, request.max_hours)
    volumes = root_volume(request, launcher.root_of(record.image))
    return launch_fields(request, record.run, record.image, script, volumes)
