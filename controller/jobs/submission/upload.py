"""Upload a job's code into the bucket. The code is either an archive of a local folder, or an archive in S3 that is
copied within S3.
"""

from __future__ import annotations

from dyntrain.controller.contract import job_files as files
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.jobs.submission.code import LIMIT_BYTES, PackedCode, source_of
from dyntrain.controller.jobs.submission.ports import Launcher
from dyntrain.controller.jobs.submission.request import JobRequest


def check_upload(launcher: Launcher, request: JobRequest) -> None:
    """Check that the job's code can be uploaded into the bucket. Raises GiveUp if the code is too large, and errors of
    `Launcher` if the code or the bucket cannot be used.
    """
    code_source = source_of(request.code)
    if code_source is not None and (code_bytes := launcher.size(*code_source)) > LIMIT_BYTES:
        raise GiveUp(f"the code {request.code} has {code_bytes / 1e6:.0f} MB, more than {LIMIT_BYTES / 1e6:g} MB")
    launcher.check_bucket(request.bucket)


def upload(launcher: Launcher, request: JobRequest, packed: PackedCode | None) -> None:
    """Upload the job's code and request into the bucket. If `packed` is None, the code is copied from an archive in
    S3.
    """
    code_key = files.code_key(request.name)
    if packed is not None:
        launcher.put(request.bucket, code_key, packed.content)
    elif (code_source := source_of(request.code)) is not None:
        launcher.copy(code_source, request.bucket, code_key)
    launcher.put(request.bucket, files.request_key(request.name), request.as_json())
