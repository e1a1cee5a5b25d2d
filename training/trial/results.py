"""Read the results of an experiment's runs, from their folders and logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from dyntrain.training.trial.differences import EPOCH, Arrays, Key
from dyntrain.training.trial.members import events_of
from dyntrain.training.trial.processes import LONGEST_LINE, EndedRun
from dyntrain.training.trial.verdict import RunCounts
from dyntrain.training.trial_files import SUFFIX, Order, SavedStep, saved_steps

REFUSAL_PATTERN = re.compile(r"\.Refused\w*: (?P<why>(.|\n)*)")  # ends the log of a script that the job refuses
TRACEBACK_PATTERN = re.compile(r"^Traceback .*\n(?:[ \t].*\n)+(?P<why>[A-Za-z].*)", re.MULTILINE)
KILLED_REASON = "killed by SIGKILL"
TEXT_BEFORE_REASON, TEXT_AFTER_REASON = (
    " has failed: ",
    "; what happened is in",
)  # before and after the reason in the launcher's line


def load_arrays(path: Path) -> Arrays:
    with np.load(path) as arrays:
        return dict(arrays)


def step_arrays(order: Order) -> dict[Key, Arrays]:
    """Return the arrays of each step of a run in one process."""
    return {
        (saved_step.loop, saved_step.step): load_arrays(path) for saved_step, path in saved_steps(order.steps_folder)
    }


def loops_of(keys: Iterable[Key]) -> list[list[int]]:
    """Return for each loop over epochs the numbers of its steps.

    A loop's first key in `keys` is left out, because it stands for the initial weights, before the loop's first step.
    """
    loops: dict[int, list[int]] = {}
    for loop, step in sorted(keys):
        loops.setdefault(loop, []).append(step)
    return [steps[1:] for steps in loops.values()]


def epoch_ends(run: Mapping[Key, Arrays]) -> set[int]:
    """Return the number of the last step of each epoch."""
    return {
        step for loop, step in run if (loop, step - 1) in run and run[loop, step][EPOCH] != run[loop, step - 1][EPOCH]
    }


def member_files(order: Order) -> dict[Key, list[tuple[SavedStep, Path]]]:
    """Return for each step the files that all workers saved, from the last generation (group of workers) that made the
    step.
    """
    latest_files: dict[Key, list[tuple[SavedStep, Path]]] = {}
    for saved_step, path in saved_steps(order.steps_folder):
        step_files = latest_files.setdefault((saved_step.loop, saved_step.step), [])
        if step_files and step_files[0][0].generation < saved_step.generation:
            step_files.clear()
        step_files.append((saved_step, path))
    return latest_files


def saved_arrays(order: Order) -> Arrays:
    """Return the last version of each array that the script saved, by file and array name."""
    files = sorted(path for path in order.saved_folder.glob(f"*{SUFFIX}") if not path.name.startswith("_"))
    return {name: array for path in files for name, array in load_arrays(path).items()}


def counts_of_run(order: Order, steps: int) -> RunCounts:
    """Return the numbers of steps, changes, kills and workers in the run with changing members."""
    formed_events = [event for event in events_of(order) if event["event"] == "formed"]
    worker_count = len(formed_events[-1]["members"]) if formed_events else 1
    return RunCounts(steps, max(0, len(formed_events) - 1), len([*order.folder.glob("killed-*")]), worker_count)


def exit_text(ended_run: EndedRun) -> str:
    return f"ended with exit code {ended_run.code}: {ended_run.last_log_line}"


def refusal_reason(ended_run: EndedRun) -> str | None:
    """Return the full text of why the job refused the script, or None if the job did not refuse the script."""
    match = REFUSAL_PATTERN.search(ended_run.log.read_text(errors="replace"))
    return None if match is None else match["why"].strip()


def script_error(order: Order, ended_run: EndedRun) -> str | None:
    """Return the error by which the script ended on one worker while the job continued without that worker.

    Returns None if all lost workers were killed by the experiment.
    """
    lost_events = [event for event in events_of(order) if event["event"] == "worker_lost"]
    killed_pids = {event["pid"] for event in lost_events if event["reason"] == KILLED_REASON}
    reasons = [str(event["reason"]) for event in lost_events if event["pid"] not in killed_pids]
    error_lines = TRACEBACK_PATTERN.findall(ended_run.log.read_text(errors="replace"))
    exit_reasons = [reason for reason in reasons if reason.startswith("exit code")]
    return (error_lines or exit_reasons)[-1][:LONGEST_LINE] if exit_reasons or (reasons and error_lines) else None


def failure_reason(ended_run: EndedRun) -> str:
    """Return why the job failed, as the launcher's message in the log says; without such a message, the log's last
    line.
    """
    for line in reversed(ended_run.log.read_text(errors="replace").splitlines()):
        if TEXT_BEFORE_REASON in line:
            return line.partition(TEXT_BEFORE_REASON)[2].partition(TEXT_AFTER_REASON)[0][:LONGEST_LINE]
    return ended_run.last_log_line
