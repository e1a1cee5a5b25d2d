"""Upload a job's code into the bucket: a folder's archive, or an archive's copy in S3."""

from __future__ import annotations

from dyntrain.controller.contract import job_files as files
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.jobs.submission.code import LIMIT_BYTES, Packed, source_of
from dyntrain.controller.jobs.submission.ports import Launcher
from dyntrain.controller.jobs.submission.request import JobRequest


def check_upload(launcher: Launcher, request: JobRequest) -> None:
    """Raise GiveUp, or an error of `Launcher`, for code that cannot be uploaded."""
    source = source_of(request.code)
    if source is not None and (size := launcher.size(*source)) > LIMIT_BYTES:
        raise GiveUp(f"{request.code} has {size / 1e6:.0f} MB, more than {LIMIT_BYTES / 1e6:g} MB")
    launcher.check_bucket(request.bucket)


def upload(launcher: Launcher, request: JobRequest, packed: Packed | None) -> None:
    """Upload the code and the request. `packed` None: the code is an archive in S3."""
    key = files.code_key(request.name)
    if packed is not None:
        launcher.put(request.bucket, key, packed.content)
    elif (source := source_of(request.code)) is not None:
        launcher.copy(source, request.bucket, key)
    launcher.put(request.bucket, files.request_key(request.name), request.text())
