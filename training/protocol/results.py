"""Messages between the coordinator and the program that uploads a job's results.

With an empty line the coordinator requests an upload of all new results; the program answers with one line of JSON.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

SCRIPTS_SECONDS = 150.0  # time for the nodes' scripts to end after the job; a node gives its script two minutes
END_SECONDS = 400.0  # limit for the last upload; machines end ten minutes after the job (`after_job`)


class Uploaded(BaseModel):
    """The result of an upload of a job's results.

    `failed` says why some files could not be uploaded; the next request uploads the missing files.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: int  # number of uploaded files
    size: int  # bytes of these files
    seconds: float  # duration of the upload
    failed: str | None = None  # why files are missing
