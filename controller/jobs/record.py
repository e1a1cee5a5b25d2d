"""The stored record of a job, which is written before the job's machines are launched, so that every machine can be
found by its job's record.
"""

from __future__ import annotations

from typing import Literal

from dyntrain.controller.contract.job_files import client_token, run_id
from pydantic import BaseModel, ConfigDict

State = Literal["LAUNCHING", "RUNNING", "SUCCEEDED", "FAILED", "INTERRUPTED", "STOPPED"]  # of a job
ENDED: tuple[State, ...] = ("SUCCEEDED", "FAILED", "INTERRUPTED", "STOPPED")  # states of ended jobs
LAUNCH_SECONDS = 900.0  # time limit of a submit
KEPT_SECONDS = 90 * 86_400.0  # time until the record of an ended job expires


class JobRecord(BaseModel):
    """The record of a job, which the table stores as JSON."""

    model_config = ConfigDict(frozen=True)

    name: str  # the job's name
    submission: str  # identifies the job among jobs of the same name
    attempt: int = 1  # counts the job's launches
    digest: str  # of the job's request and code; equal digests mean the same job
    request: str = ""  # SHA-256 hash of the request in the bucket
    image: str = ""  # AMI id of the attempt's machine image
    bucket: str  # the S3 bucket with the job's files
    nodes: int  # number of machines
    instance_type: str
    spot: bool = False  # whether the machines are Spot instances
    retries: int = 0  # how often an interrupted job may be launched again
    max_hours: float  # time limit of the job
    since: float  # the start of the attempt, in seconds since the epoch
    changed: float  # the time of the last change of state
    state: State = "LAUNCHING"
    reason: str = ""  # the reason of the state
    lost_since: float | None = None  # when a machine was first seen to have ended without exit code
    elastic: bool = False  # whether the job is a cluster of the same name, which the resync handles as a cluster

    @property
    def run(self) -> str:  # id of the attempt's run
        return run_id(self.submission, self.attempt)

    @property
    def token(self) -> str:  # client token of the attempt's launch
        return client_token(self.run)

    @property
    def ended(self) -> bool:  # whether the job has ended
        return self.state in ENDED

    def with_state(self, state: State, reason: str, now: float) -> JobRecord:
        return self.model_copy(update={"state": state, "reason": reason, "changed": now, "lost_since": None})
