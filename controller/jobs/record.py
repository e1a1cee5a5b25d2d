"""The stored record of a job. Its record is written before anything is launched, so that nothing can be launched that
nobody would find.
"""

from __future__ import annotations

from typing import Literal

from dyntrain.controller.contract.job_files import client_token, run_id
from pydantic import BaseModel, ConfigDict

State = Literal["LAUNCHING", "RUNNING", "SUCCEEDED", "FAILED", "INTERRUPTED", "STOPPED"]
ENDED: tuple[State, ...] = ("SUCCEEDED", "FAILED", "INTERRUPTED", "STOPPED")
LAUNCH_SECONDS = 900.0  # for a submit to finish what it began
KEPT_SECONDS = 90 * 86_400.0


class JobRecord(BaseModel):
    """`submission` tells this job from others that had its name, `attempt` its launches. `since` is when the attempt
    began, `changed` when the state did. `lost_since`: when a machine was first seen to be gone without a word.
    `request` is the hash of what was asked for, as it lies in the bucket; `image` is what the attempt is launched from.
    `elastic`: it is the cluster of its name, which the resync looks after as it does after every cluster.
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

    def into(self, state: State, reason: str, now: float) -> JobRecord:
        return self.model_copy(update={"state": state, "reason": reason, "changed": now, "lost_since": None})
