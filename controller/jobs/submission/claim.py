"""A submit command claims its job's record, so that only one of several simultaneous submits of the same job
continues.
"""

from __future__ import annotations

from contextlib import suppress

from dyntrain.controller.contract import job_files as files
from dyntrain.controller.contract.errors import Conflict, ControllerError, GiveUp
from dyntrain.controller.jobs.ports import JobPorts, StoredJob
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.submission.ports import Launcher


def write_record(ports: JobPorts, record: JobRecord, existing: StoredJob) -> StoredJob:
    """Write the job's record in place of `existing`. The resync does not check an elastic job's record, because an
    elastic job runs as a cluster. Raises Conflict.
    """
    ports.records.put(StoredJob(record, existing.version), over=record.elastic)
    return StoredJob(record, existing.version + 1)


def claim_record(ports: JobPorts, stored: StoredJob) -> StoredJob:
    """Claim the job's record before machines or a stack are created. Raises GiveUp if another submit command has
    claimed the record, or if the job was stopped or given up meanwhile.
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
    """Delete the job's record and uploaded files, unless another submit command has claimed the record."""
    record = stored.record
    with suppress(ControllerError):
        ports.records.delete(stored)
        launcher.delete(record.bucket, [files.code_key(record.name), files.request_key(record.name)])
