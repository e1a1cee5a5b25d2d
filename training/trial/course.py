"""Run an experiment for the command line: print its progress and its result, and delete its files."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from dyntrain.training.host.reaper import run_below
from dyntrain.training.launch.plan import LaunchError
from dyntrain.training.trial.experiment import MEMBERS, ONE, Experiment, Options
from dyntrain.training.trial.verdict import DIFFERING_VARIABLES_TEXT, NOT_CHECKED_TEXT, Verdict

INTERRUPTED_CODE, BAD_COMMAND_CODE = 130, 2


def run_experiment(options: Options, as_json: bool) -> int:
    """Run an experiment; return the verdict's exit code, 2 if the command cannot be run, or 130 if interrupted.

    No process of the experiment outlives the call. The experiment's logs are deleted if the script trains the same on
    changing workers.
    """
    return run_below(lambda: asyncio.run(_run_experiment(options, as_json)))


async def _run_experiment(options: Options, as_json: bool) -> int:
    started_at, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="dyntrain-check-"))
    experiment = Experiment(options, folder, lambda text: _print_progress(started_at, text))
    task = asyncio.create_task(experiment.verdict())
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_number, task.cancel)
    try:
        verdict = await task
    except asyncio.CancelledError:
        shutil.rmtree(folder, ignore_errors=True)
        _print_progress(started_at, "interrupted: all processes are ended")
        return INTERRUPTED_CODE
    except LaunchError as error:
        shutil.rmtree(folder, ignore_errors=True)
        _print_progress(started_at, str(error))
        return BAD_COMMAND_CODE
    log_paths = _delete_experiment_files(folder, verdict)
    _print_verdict(verdict, experiment, options, log_paths, as_json)
    return verdict.exit_code


def _delete_experiment_files(folder: Path, verdict: Verdict) -> list[str]:
    """Delete the experiment's files if the script trains the same on changing workers; otherwise delete only saved
    arrays.

    Returns the paths of the logs that are kept.
    """
    if not verdict.exit_code:
        shutil.rmtree(folder, ignore_errors=True)
        return []
    for run_folder in folder.iterdir():
        if run_folder.is_dir():
            shutil.rmtree(run_folder / "steps", ignore_errors=True)
    return [str(folder / f"{name}.log") for name in (ONE, MEMBERS) if (folder / f"{name}.log").exists()]


def _print_verdict(
    verdict: Verdict, experiment: Experiment, options: Options, log_paths: list[str], as_json: bool
) -> None:
    plan_text = None if experiment.plan is None else str(experiment.plan)
    if as_json:
        print(json.dumps({**verdict.facts, "plan": plan_text, "seed": options.seed, "logs": log_paths}), flush=True)
        return
    print(verdict.sentence, flush=True)
    if plan_text is not None:
        print(f"Again: --plan '{plan_text}' --seed {options.seed}. {NOT_CHECKED_TEXT}", flush=True)
    if verdict.others:
        print(DIFFERING_VARIABLES_TEXT.format(verdict.others), flush=True)
    for finding in verdict.findings:
        print(finding, flush=True)
    if log_paths:
        print(f"What the script wrote: {' '.join(log_paths)}", flush=True)


def _print_progress(started_at: float, text: str) -> None:
    print(f"{time.monotonic() - started_at:4.0f} s  {text}", file=sys.stderr, flush=True)
