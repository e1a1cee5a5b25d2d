"""What runs of an experiment have left in their folders, and in their logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from dyntrain.training.trial.differences import EPOCH, Arrays, Key
from dyntrain.training.trial.members import events_of
from dyntrain.training.trial.processes import LONGEST, Ended
from dyntrain.training.trial.verdict import Course
from dyntrain.training.trial_files import SUFFIX, Order, Taken, taken

REFUSED = re.compile(r"\.Refused\w*: (?P<why>(.|\n)*)")  # at the end of the log of a script that the job refuses
RAISED = re.compile(r"^Traceback .*\n(?:[ \t].*\n)+(?P<why>[A-Za-z].*)", re.MULTILINE)
KILLED = "killed by SIGKILL"
FAILED, FILES = " has failed: ", "; what happened is in"  # in the launcher's line, before and after why


def load(path: Path) -> Arrays:
    with np.load(path) as arrays:
        return dict(arrays)


def series(order: Order) -> dict[Key, Arrays]:
    """Of a run in one process."""
    return {(at.loop, at.step): load(path) for at, path in taken(order.steps_folder)}


def loops_of(keys: Iterable[Key]) -> list[list[int]]:
    """The steps of each loop. Its first key is where it begins, with the step before."""
    loops: dict[int, list[int]] = {}
    for loop, step in sorted(keys):
        loops.setdefault(loop, []).append(step)
    return [steps[1:] for steps in loops.values()]


def epochs_end(run: Mapping[Key, Arrays]) -> set[int]:
    """With these steps."""
    return {
        step for loop, step in run if (loop, step - 1) in run and run[loop, step][EPOCH] != run[loop, step - 1][EPOCH]
    }


def of_members(order: Order) -> dict[Key, list[tuple[Taken, Path]]]:
    """Of each step what its workers had the last time that it was made."""
    latest: dict[Key, list[tuple[Taken, Path]]] = {}
    for at, path in taken(order.steps_folder):
        had = latest.setdefault((at.loop, at.step), [])
        if had and had[0][0].generation < at.generation:
            had.clear()
        had.append((at, path))
    return latest


def saved(order: Order) -> Arrays:
    """By file and name, as the script has saved it last."""
    files = sorted(path for path in order.saved_folder.glob(f"*{SUFFIX}") if not path.name.startswith("_"))
    return {name: array for path in files for name, array in load(path).items()}


def came_to(order: Order, steps: int) -> Course:
    """Of the members."""
    formed = [event for event in events_of(order) if event["event"] == "formed"]
    workers = len(formed[-1]["members"]) if formed else 1
    return Course(steps, max(0, len(formed) - 1), len([*order.folder.glob("killed-*")]), workers)


def in_words(ended: Ended) -> str:
    return f"ended with exit code {ended.code}: {ended.last_words}"


def refusal(ended: Ended) -> str | None:
    """Why the job has refused the script: all of it."""
    match = REFUSED.search(ended.log.read_text(errors="replace"))
    return None if match is None else match["why"].strip()


def raised(order: Order, ended: Ended) -> str | None:
    """By the script of a worker without which the job went on. None: all that were lost were killed."""
    lost = [event for event in events_of(order) if event["event"] == "worker_lost"]
    killed = {event["pid"] for event in lost if event["reason"] == KILLED}
    reasons = [str(event["reason"]) for event in lost if event["pid"] not in killed]
    errors = RAISED.findall(ended.log.read_text(errors="replace"))
    failed = [reason for reason in reasons if reason.startswith("exit code")]
    return (errors or failed)[-1][:LONGEST] if failed or (reasons and errors) else None


def why(ended: Ended) -> str:
    """What the job failed of: the launcher says it in one line, before what it says of its files."""
    for line in reversed(ended.log.read_text(errors="replace").splitlines()):
        if FAILED in line:
            return line.partition(FAILED)[2].partition(FILES)[0][:LONGEST]
    return ended.last_words
