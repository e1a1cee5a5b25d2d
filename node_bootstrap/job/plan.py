"""What a node is to do, and when it gives up: decided without a clock, a file or the network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dyntrain.controller.contract.job_files import FAILED, INTERRUPTED, SUCCEEDED, TAIL_CHARACTERS, TAIL_LINES, Exit

START_SECONDS = 900.0  # within which every node of a run must have been heard of
SILENT_SECONDS = 300.0  # after which a node that was heard of is taken for lost


class Plan(NamedTuple):
    """`requirements` "" for none. `seconds`: how long the job may take, from this node's start."""

    name: str
    run: str
    nodes: int
    port: int
    command: list[str]
    env: dict[str, str]
    artifacts: str
    requirements: str
    resumed: bool
    seconds: float


def plan_of(text: str) -> Plan:
    fields = json.loads(text)
    return Plan(**{name: fields[name] for name in Plan._fields})


def environment(
    plan: Plan, inherited: Mapping[str, str], path: str, rank: int, master: str, home: str
) -> dict[str, str]:
    """Of the command. What the person gave counts more than what the machine has, but not more than the topology, and
    than `path`: the person's with the job's own packages in front.
    """
    return {
        **{name: inherited[name] for name in ("LANG", "LD_LIBRARY_PATH") if name in inherited},
        **{name: value for name, value in inherited.items() if name.startswith("AWS_")},
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


def exit_of_command(rank: int, code: int, now: float, tail: str) -> Exit:
    if code == 0:
        return Exit(SUCCEEDED, rank, 0, f"rank {rank} ended", now)
    how = f"exit code {code}" if code > 0 else f"signal {-code}"
    return Exit(FAILED, rank, code, f"the command of rank {rank} ended with {how}", now, tail)


def verdict_of(ended: Exit, codes: Mapping[int, int | None], nodes: int) -> Exit | None:
    """What this node's end means for the job. The last of those that succeed speaks for all; a failure speaks at once.
    `codes` are of all ranks that have ended.
    """
    if ended.verdict != SUCCEEDED:
        return ended
    if any(codes.get(rank) != 0 for rank in range(nodes)):
        return None
    return ended._replace(reason=f"all {nodes} ranks ended with exit code 0")


def interrupted(rank: int, now: float) -> Exit:
    return Exit(INTERRUPTED, rank, None, f"EC2 takes back the Spot instance of rank {rank}", now)


def lost(
    rank: int,
    nodes: int,
    seen: Mapping[int, float],
    ended: set[int],
    waited: float,
    now: float,
) -> Exit | None:
    """Whether another node fell silent, or never spoke. `seen` are the times of the nodes' signs of life, this one's
    too, all by S3's clock; `ended` have reported their end; `waited` is how long this node has been up.
    """
    own = seen.get(rank, 0.0)
    for other in sorted(set(range(nodes)) - ended - {rank}):
        if other in seen and own - seen[other] > SILENT_SECONDS:
            reason = f"rank {other} has been silent for {own - seen[other]:.0f} seconds"
        elif other not in seen and waited > START_SECONDS:
            reason = f"rank {other} was never heard of, {waited:.0f} seconds after rank {rank} started"
        else:
            continue
        return Exit(FAILED, other, None, reason, now)
    return None
