"""The stored record of a job, written before the job's machines are launched, so that all machines can be found."""

from __future__ import annotations

from typing import Literal

from dyntrain.controller.contract.job_files import client_token, run_id
from pydantic import BaseModel, ConfigDict

State = Literal["LAUNCHING", "RUNNING", "SUCCEEDED", "FAILED", "INTERRUPTED", "STOPPED"]
ENDED: tuple[State, ...] = ("SUCCEEDED", "FAILED", "INTERRUPTED", "STOPPED")
LAUNCH_SECONDS = 900.0  # time limit of a submit
KEPT_SECONDS = 90 * 86_400.0


class JobRecord(BaseModel):
    """The record of a job. `submission` identifies the job among jobs of its name, `attempt` counts its launches.

    `since` is the start of the attempt, `changed` the time of the last change of state. `lost_since`: when a machine
    was first seen to have ended without exit code. `request` is the hash of the request in the bucket, `image` the
    attempt's image. `elastic`: the job is a cluster of the same name, which the resync handles as a cluster.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    submission: str
    attempt: int = 1
    digest: str
    request: str = ""
    image: str = ""
    bucket: str
    nodes: int
    instance_type: str
    spot: bool = False
    retries: int = 0
    max_hours: float
    since: float
    changed: float
    state: State = "LAUNCHING"
    reason: str = ""
    lost_since: float | None = None
    elastic: bool = False

    @property
    def run(self) -> str:
        return run_id(self.submission, self.attempt)

    @property
    def token(self) -> str:
        return client_token(self.run)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def with_state(self, state: State, reason: str, now: float) -> JobRecord:
        return self.model_copy(update={"state": state, "reason": reason, "changed": now, "lost_since": None})
