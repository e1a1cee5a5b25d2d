"""A submit command claims its job's record, so that only one of several simultaneous submits of a job continues."""

from __future__ import annotations

from contextlib import suppress

from dyntrain.controller.contract import job_files as files
from dyntrain.controller.contract.errors import Conflict, ControllerError, GiveUp
from dyntrain.controller.jobs.ports import JobPorts, StoredJob
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.submission.ports import Launcher


def write_record(ports: JobPorts, record: JobRecord, existing: StoredJob) -> StoredJob:
    """Write the record. An elastic job runs as a cluster, so only people's commands read its record. Raises
    Conflict.
    """
    ports.records.put(StoredJob(record, existing.version), over=record.elastic)
    return StoredJob(record, existing.version + 1)


def claim_record(ports: JobPorts, stored: StoredJob) -> StoredJob:
    """Claim the record before anything is created. Raises GiveUp if another submit has claimed the record, or if the
    job was stopped or given up.
    """
    now = ports.clock()
    try:
        return write_record(ports, stored.record.model_copy(update={"since": now, "changed": now}), stored)
    except Conflict as error:
        name = stored.record.name
        raise GiveUp(
            f"the job {name} was meanwhile claimed by another submit, given up or stopped; "
            f"see `dyntrain job status {name}`"
        ) from error


def forget_job(ports: JobPorts, launcher: Launcher, stored: StoredJob) -> None:
    """Delete the record and the uploaded files, unless another submit has claimed the record."""
    record = stored.record
    with suppress(ControllerError):
        ports.records.delete(stored)
        launcher.delete(record.bucket, [files.code_key(record.name), files.request_key(record.name)])
