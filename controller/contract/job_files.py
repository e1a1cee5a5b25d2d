"""The keys of a job's files in its bucket, and the format of its nodes' reports: what its machines, the command line
and the resync agree on.

The nodes' program takes this file along to machines as they come, so it is Python 3.9 and imports the standard library
only.
"""

from __future__ import annotations

import json
from typing import NamedTuple

JOB_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}"
JOB_TAG = "dyntrain:job"  # on each instance, with the job's name
LOG_GROUP = "/aws/ec2/training-jobs"
SUCCEEDED, FAILED, INTERRUPTED, STOPPED = "SUCCEEDED", "FAILED", "INTERRUPTED", "STOPPED"
VERDICTS = (SUCCEEDED, FAILED, INTERRUPTED, STOPPED)
TAIL_LINES = 20
TAIL_CHARACTERS = 4000


def run_id(submission: str, attempt: int) -> str:
    """The name of one launch of a job's machines."""
    return f"{submission}-{attempt}"


def client_token(run: str) -> str:
    """The client token of the RunInstances call. Nobody can change it afterwards, so it proves whose an instance is."""
    return f"dyntrain-job-{run}"


def code_key(name: str) -> str:
    return f"{name}/code.tar.gz"


def request_key(name: str) -> str:
    """The key of the request, by which the job can be launched again."""
    return f"{name}/job.json"


def artifacts_prefix(name: str) -> str:
    return f"{name}/artifacts/"


def run_prefix(name: str, run: str) -> str:
    return f"{name}/runs/{run}/"


def plan_key(name: str, run: str) -> str:
    return f"{run_prefix(name, run)}plan.json"


def verdict_key(name: str, run: str) -> str:
    """The key of the run's verdict. It is written once: a second writer finds it there."""
    return f"{run_prefix(name, run)}exit.json"


def rank_exit_key(name: str, run: str, rank: int) -> str:
    return f"{run_prefix(name, run)}{rank}/exit.json"


def alive_key(name: str, run: str, rank: int) -> str:
    """The key of the rank's sign of life, written every minute while the node lives."""
    return f"{run_prefix(name, run)}{rank}/alive"


def output_key(name: str, run: str, rank: int) -> str:
    """The key of what the node's command wrote, kept besides CloudWatch."""
    return f"{run_prefix(name, run)}{rank}/output.log"


def log_stream(name: str, rank: int) -> str:
    return f"{name}_{rank}"


class Exit(NamedTuple):
    """The content of exit.json. `code` is None where no command ended: the machine was taken back, or fell silent."""

    verdict: str
    rank: int
    code: int | None
    reason: str
    at: float
    tail: str = ""

    def text(self) -> str:
        return json.dumps(self._asdict(), indent=1) + "\n"


def exit_of(text: str) -> Exit:
    """Parse an exit.json. Raises ValueError when it is none: people may write anything into their bucket."""
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
