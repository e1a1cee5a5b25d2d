"""What the coordinator and the program that uploads a job's results say to each other: an empty line asks for all that
is new, and one line of JSON answers.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

SCRIPTS_SECONDS = 150.0  # until the scripts have ended: a node gives its own two minutes for its last lines
END_SECONDS = 400.0  # for the last upload; machines that end after the job do so ten minutes after it (`after_job`)


class Uploaded(BaseModel):
    """`failed`: why not everything; what is missing is tried again with the next line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: int
    size: int  # bytes
    seconds: float
    failed: str | None = None
