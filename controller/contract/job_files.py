"""The S3 keys of a job's files, and the format of the file exit.json, in which a machine of the job reports its result.
The job's machines, the command line and the loop `resync` use this module.

This module is copied to machines on which only the software of the machine image is installed. The module therefore
supports Python 3.9 and imports only the standard library.
"""

from __future__ import annotations

import json
from typing import NamedTuple

JOB_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}"  # a regular expression
JOB_TAG = "dyntrain:job"  # a tag on each instance of a job; its value is the job's name
LOG_GROUP = "/aws/ec2/training-jobs"  # the CloudWatch log group of all jobs
SUCCEEDED, FAILED, INTERRUPTED, STOPPED = "SUCCEEDED", "FAILED", "INTERRUPTED", "STOPPED"
VERDICTS = (SUCCEEDED, FAILED, INTERRUPTED, STOPPED)  # how a job can end
TAIL_LINES = 20  # lines of output that exit.json repeats
TAIL_CHARACTERS = 4000  # characters of output that exit.json repeats


def run_id(submission: str, attempt: int) -> str:
    """The name of a run, that is, of one launch of a job's machines."""
    return f"{submission}-{attempt}"


def client_token(run: str) -> str:
    """The client token with which the run's machines are launched (RunInstances). An instance keeps this token for
    ever, so the token proves that the instance belongs to the run.
    """
    return f"dyntrain-job-{run}"


def code_key(name: str) -> str:
    return f"{name}/code.tar.gz"


def request_key(name: str) -> str:
    """The S3 key of the job's stored request, from which the job can be launched again."""
    return f"{name}/job.json"


def artifacts_prefix(name: str) -> str:
    return f"{name}/artifacts/"


def run_prefix(name: str, run: str) -> str:
    return f"{name}/runs/{run}/"


def plan_key(name: str, run: str) -> str:
    return f"{run_prefix(name, run)}plan.json"


def verdict_key(name: str, run: str) -> str:
    """The S3 key of the run's final result. Only the first writer creates the object with this key, and nobody changes
    the object later.
    """
    return f"{run_prefix(name, run)}exit.json"


def rank_exit_key(name: str, run: str, rank: int) -> str:
    return f"{run_prefix(name, run)}{rank}/exit.json"


def alive_key(name: str, run: str, rank: int) -> str:
    """The S3 key of an object that the machine of this rank rewrites every minute while the machine runs."""
    return f"{run_prefix(name, run)}{rank}/alive"


def output_key(name: str, run: str, rank: int) -> str:
    """The S3 key of the output that the job's command writes on the machine of this rank. CloudWatch contains the same
    output.
    """
    return f"{run_prefix(name, run)}{rank}/output.log"


def log_stream(name: str, rank: int) -> str:
    return f"{name}_{rank}"


class Exit(NamedTuple):
    """The content of exit.json. `code` is the exit code of the command. `code` is None if the command did not end,
    because AWS took the machine or the machine stopped reporting.
    """

    verdict: str  # how the job ended
    rank: int  # of the machine that reports
    code: int | None  # exit code of the command
    reason: str  # why the job ended so
    at: float  # time of the result, in seconds since the epoch
    tail: str = ""  # the last lines of output

    def text(self) -> str:  # the content as JSON
        return json.dumps(self._asdict(), indent=1) + "\n"


def exit_of(text: str) -> Exit:
    """Parse the text of exit.json. Raises ValueError for a wrong text, which is possible because users may write into
    the S3 bucket.
    """
    try:
        exit_fields = json.loads(text)
        exit_code = exit_fields["code"]
        job_exit = Exit(
            str(exit_fields["verdict"]),
            int(exit_fields["rank"]),
            None if exit_code is None else int(exit_code),
            str(exit_fields["reason"])[:TAIL_CHARACTERS],
            float(exit_fields["at"]),
            str(exit_fields.get("tail", ""))[-TAIL_CHARACTERS:],
        )
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"exit.json cannot be read: {error!r}") from error
    if job_exit.verdict not in VERDICTS:
        raise ValueError(f"exit.json contains the unknown verdict {job_exit.verdict!r}")
    return job_exit
