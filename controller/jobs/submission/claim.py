"""A submit's claim on its job's record: of two submits one continues, and the other changes nothing."""

from __future__ import annotations

from contextlib import suppress

from dyntrain.controller.contract import job_files as files
from dyntrain.controller.contract.errors import Conflict, ControllerError, GiveUp
from dyntrain.controller.jobs.ports import JobPorts, StoredJob
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.submission.ports import Launcher


def put(ports: JobPorts, record: JobRecord, existing: StoredJob) -> StoredJob:
    """Write the record. An elastic job is managed as a cluster, so its record is for people alone. Raises Conflict."""
    ports.records.put(StoredJob(record, existing.version), over=record.elastic)
    return StoredJob(record, existing.version + 1)


def claim_record(ports: JobPorts, stored: StoredJob) -> StoredJob:
    """Claim the record before anything is created. Raises GiveUp if another submit has claimed it, or if the job was
    stopped or given up.
    """
    now = ports.clock()
    try:
        return put(ports, stored.record.model_copy(update={"since": now, "changed": now}), stored)
    except Conflict as error:
        name = stored.record.name
        raise GiveUp(
            f"{name} was claimed by another submit meanwhile, given up or stopped; see `dyntrain job status {name}`"
        ) from error


def forget(ports: JobPorts, launcher: Launcher, stored: StoredJob) -> None:
    """Delete the record and the uploaded files, unless another submit has claimed the record."""
    record = stored.record
    with suppress(ControllerError):
        ports.records.delete(stored)
        launcher.delete(record.bucket, [files.code_key(record.name), files.request_key(record.name)])
