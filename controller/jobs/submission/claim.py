"""A submit's hold on its job's record: of two submits one goes on, and the other touches nothing."""

from __future__ import annotations

from contextlib import suppress

from dyntrain.controller.contract import job_files as files
from dyntrain.controller.contract.errors import Conflict, ControllerError, GiveUp
from dyntrain.controller.jobs.ports import JobPorts, StoredJob
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.submission.ports import Launcher


def put(ports: JobPorts, record: JobRecord, over: StoredJob) -> StoredJob:
    """Raises Conflict. An elastic job is looked after as a cluster, so its record is for people alone."""
    ports.records.put(StoredJob(record, over.version), over=record.elastic)
    return StoredJob(record, over.version + 1)


def mine(ports: JobPorts, stored: StoredJob) -> StoredJob:
    """Before anything is made: nobody else goes on with it, or has ended it, and the resync has not given it up. Raises
    GiveUp.
    """
    now = ports.clock()
    try:
        return put(ports, stored.record.model_copy(update={"since": now, "changed": now}), stored)
    except Conflict as error:
        name = stored.record.name
        raise GiveUp(
            f"{name} was taken up by another submit meanwhile, given up or stopped; `dyntrain job status {name}`"
        ) from error


def forget(ports: JobPorts, launcher: Launcher, stored: StoredJob) -> None:
    """Unless somebody else goes on with it."""
    record = stored.record
    with suppress(ControllerError):
        ports.records.delete(stored)
        launcher.delete(record.bucket, [files.code_key(record.name), files.request_key(record.name)])
