"""The S3 keys of a job's files, and the format of the reports of the job's machines. The job's machines, the command
line and the resync use this module.

This file is copied to machines that have only their image's software. So the file supports Python 3.9 and imports only
the standard library.
"""

from __future__ import annotations

import json
from typing import NamedTuple

JOB_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}"
JOB_TAG = "dyntrain:job"  # a tag on each instance of a job; its value is the job's name
LOG_GROUP = "/aws/ec2/training-jobs"
SUCCEEDED, FAILED, INTERRUPTED, STOPPED = "SUCCEEDED", "FAILED", "INTERRUPTED", "STOPPED"
VERDICTS = (SUCCEEDED, FAILED, INTERRUPTED, STOPPED)
TAIL_LINES = 20
TAIL_CHARACTERS = 4000


def run_id(submission: str, attempt: int) -> str:
    """The name of a run, that is, of one launch of a job's machines."""
    return f"{submission}-{attempt}"


def client_token(run: str) -> str:
    """The client token of the run's RunInstances call. A client token cannot be changed later, so it proves that an
    instance belongs to the run.
    """
    return f"dyntrain-job-{run}"


def code_key(name: str) -> str:
    return f"{name}/code.tar.gz"


def request_key(name: str) -> str:
    """The key of the stored request, with which the job can be launched again."""
    return f"{name}/job.json"


def artifacts_prefix(name: str) -> str:
    return f"{name}/artifacts/"


def run_prefix(name: str, run: str) -> str:
    return f"{name}/runs/{run}/"


def plan_key(name: str, run: str) -> str:
    return f"{run_prefix(name, run)}plan.json"


def verdict_key(name: str, run: str) -> str:
    """The key of the run's final result. The first writer creates the object, and later writers leave it unchanged."""
    return f"{run_prefix(name, run)}exit.json"


def rank_exit_key(name: str, run: str, rank: int) -> str:
    return f"{run_prefix(name, run)}{rank}/exit.json"


def alive_key(name: str, run: str, rank: int) -> str:
    """The key of an object that the node of this rank rewrites every minute as a sign of life."""
    return f"{run_prefix(name, run)}{rank}/alive"


def output_key(name: str, run: str, rank: int) -> str:
    """The key of the output of the node's command. CloudWatch contains the same output."""
    return f"{run_prefix(name, run)}{rank}/output.log"


def log_stream(name: str, rank: int) -> str:
    return f"{name}_{rank}"


class Exit(NamedTuple):
    """The content of exit.json. `code` is None when no command ended, because AWS took the machine or the machine
    stopped reporting.
    """

    verdict: str
    rank: int
    code: int | None
    reason: str
    at: float
    tail: str = ""

    def text(self) -> str:
        return json.dumps(self._asdict(), indent=1) + "\n"


def exit_of(text: str) -> Exit:
    """Parse the text of exit.json. Raises ValueError for other text, because people may write into the bucket."""
    try:
        fields = json.loads(text)
        code = fields["code"]
        parsed = Exit(
            str(fields["verdict"]),
            int(fields["rank"]),
            None if code is None else int(code),
            str(fields["reason"])[:TAIL_CHARACTERS],
            float(fields["at"]),
            str(fields.get("tail", ""))[-TAIL_CHARACTERS:],
        )
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"no exit.json: {error!r}") from error
    if parsed.verdict not in VERDICTS:
        raise ValueError(f"no exit.json: verdict {parsed.verdict!r}")
    return parsed
