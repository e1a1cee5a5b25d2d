"""Decides the environment of a node's command, and how the node's rank and the job ended. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dyntrain.controller.contract.job_files import FAILED, INTERRUPTED, SUCCEEDED, TAIL_CHARACTERS, TAIL_LINES, Exit

START_SECONDS = 900.0  # time limit for each node's first sign of life
SILENT_SECONDS = 300.0  # a node silent for longer counts as lost


class JobPlan(NamedTuple):
    """The plan of one run of a job, such as its command and its number of nodes."""

    name: str  # name of the job
    run: str  # id of the run
    nodes: int  # number of nodes
    port: int  # of the master, for the job's command
    command: list[str]
    env: dict[str, str]  # environment variables that the user sets
    artifacts: str  # folder of the artifacts, in the code's folder
    requirements: str  # file of packages, or ""
    resumed: bool  # whether the artifacts of earlier runs are restored
    seconds: float  # time limit of the job


def plan_of(text: str) -> JobPlan:
    plan_fields = json.loads(text)
    return JobPlan(**{name: plan_fields[name] for name in JobPlan._fields})


def environment(
    plan: JobPlan, inherited: Mapping[str, str], path: str, rank: int, master: str, home: str
) -> dict[str, str]:
    """Return the environment variables of the job's command.

    The job's own variables override those of the machine. PATH is set to `path`. The variables that name the job, the
    rank and the master cannot be overridden.
    """
    return {
        **{variable: inherited[variable] for variable in ("LANG", "LD_LIBRARY_PATH") if variable in inherited},
        **{variable: value for variable, value in inherited.items() if variable.startswith("AWS_")},
        "HOME": home,
        "PYTHONUNBUFFERED": "1",
        **plan.env,
        "PATH": path,
        "JOB_ID": plan.name,
        "NODE_RANK": str(rank),
        "NUM_NODES": str(plan.nodes),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(plan.port),
        **({"RESUMED": "1"} if plan.resumed else {}),
    }


def last_lines(lines: Sequence[str]) -> str:
    return "\n".join(lines[-TAIL_LINES:])[-TAIL_CHARACTERS:]


def exit_of_command(rank: int, code: int, now: float, log_tail: str) -> Exit:
    if code == 0:
        return Exit(SUCCEEDED, rank, 0, f"rank {rank} ended", now)
    ending = f"exit code {code}" if code > 0 else f"signal {-code}"
    return Exit(FAILED, rank, code, f"the command of rank {rank} ended with {ending}", now, log_tail)


def verdict_of(own_exit: Exit, codes: Mapping[int, int | None], nodes: int) -> Exit | None:
    """Return the job's verdict: failure if this rank failed, success if all ranks succeeded, else None."""
    if own_exit.verdict != SUCCEEDED:
        return own_exit
    if any(codes.get(rank) != 0 for rank in range(nodes)):
        return None
    return own_exit._replace(reason=f"all {nodes} ranks ended with exit code 0")


def exit_of_interrupted_rank(rank: int, now: float) -> Exit:
    """Return an `Exit` for a rank whose Spot instance EC2 takes back."""
    return Exit(INTERRUPTED, rank, None, f"EC2 takes back the Spot instance of rank {rank}", now)


def exit_of_lost_rank(
    rank: int,
    nodes: int,
    last_seen: Mapping[int, float],
    ended_ranks: set[int],
    uptime: float,
    now: float,
) -> Exit | None:
    """Return an `Exit` for a rank other than `rank` that fell silent or never showed a sign of life, else None.

    `last_seen` contains the time of each rank's last sign of life, by S3's clock. `uptime` is the time in seconds since
    this node's start.
    """
    own_last_seen = last_seen.get(rank, 0.0)
    for other_rank in sorted(set(range(nodes)) - ended_ranks - {rank}):
        if other_rank in last_seen and own_last_seen - last_seen[other_rank] > SILENT_SECONDS:
            reason = f"rank {other_rank} has been silent for {own_last_seen - last_seen[other_rank]:.0f} seconds"
        elif other_rank not in last_seen and uptime > START_SECONDS:
            reason = f"rank {other_rank} has shown no sign of life, {uptime:.0f} seconds after rank {rank} started"
        else:
            continue
        return Exit(FAILED, other_rank, None, reason, now)
    return None
