"""Conduct an experiment, from its first run to its verdict."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dyntrain.training.launch.plan import parse as parse_launch
from dyntrain.training.trial.differences import (
    Arrays,
    Comparison,
    Key,
    Rounding,
    compare,
    drew_alike,
    first_divergence,
    relative_differences,
)
from dyntrain.training.trial.plan import Plan, make_plan
from dyntrain.training.trial.processes import EndedRun, TooLong, run
from dyntrain.training.trial.results import (
    course_of,
    epoch_ends,
    exit_text,
    failure_reason,
    load,
    loops_of,
    member_files,
    refusal,
    saved_arrays,
    script_error,
    step_arrays,
)
from dyntrain.training.trial.variables import Variables, names_text, saved_differences
from dyntrain.training.trial.verdict import (
    BATCH_FOLLOWS,
    NO_STEP,
    Course,
    Verdict,
    findings,
    verdict_of_comparison,
    verdict_on_draws,
    verdict_on_failure,
    verdict_on_refusal,
    verdict_on_rerun,
    verdict_on_saved,
    verdict_on_stop,
    with_findings,
    with_script_error,
)
from dyntrain.training.trial_files import VARIABLE, Order, saved_steps
from dyntrain.training.worker.membership.client import CONTROL_FILE_VARIABLE

ONE, NUDGED, AGAIN, DRAWS, MEMBERS, RULES = "one-process", "nudged", "again", "other-draws", "members", "rules"
CHECKS = "DYNTRAIN_CHECKS"  # variable that sets whether rules are off, warn, or stop the job
IN_ONE = "the script in one process"
LOOK_SECONDS = 0.5
SUSPECT = 1e-5  # a larger effect of rounding is examined: the script may differ from run to run
DRAWS_SHARE = 0.1  # random draws that cause at least this share of a difference may be its cause


@dataclass(frozen=True)
class Options:
    """Options of an experiment.

    `seconds`: time limit of each run. `plan`: membership changes. Without a plan, the seed and the number of steps
    determine one.
    """

    command: Sequence[str]
    steps: int = 12
    epochs: int | None = None
    samples: int | None = None
    plan: Plan | None = None
    seed: int = 0
    seconds: float = 600.0


class Experiment:
    """One experiment.

    `folder`: for the experiment's files; the script writes its own files to the current folder. `tell`: prints
    progress.
    """

    def __init__(self, options: Options, folder: Path, report_progress: Callable[[str], None]) -> None:
        self._options, self._folder, self._report_progress = options, folder, report_progress
        self.plan = options.plan

    async def verdict(self) -> Verdict:
        """Run the experiment and return its verdict. Raises LaunchError if the command cannot be run."""
        launched = parse_launch(["-n", "1", "--launcher", "local", *self._options.command])
        try:
            return await self._run_all(launched.command)
        except TooLong:
            seconds = f"{self._options.seconds:.0f} s"
            return verdict_on_failure(
                "a run", f"did not end within {seconds}: set fewer --steps or --samples, or more --seconds"
            )

    async def _run_all(self, command: Sequence[str]) -> Verdict:
        self._report_progress("in one process, and again with initial weights changed by one rounding")
        one, nudged, findings = await asyncio.gather(
            self._run_alone(ONE, command), self._run_alone(NUDGED, command, nudge=True), self._rule_findings(command)
        )
        return with_findings(self._failure(one, nudged) or await self._compare(command), findings)

    def _failure(self, one: EndedRun, nudged: EndedRun) -> Verdict | None:
        if self._order(ONE).follows_file.exists():
            return Verdict("not comparable", BATCH_FOLLOWS)
        if one.code:
            refuses = refusal(one)
            return verdict_on_failure(IN_ONE, exit_text(one)) if refuses is None else verdict_on_refusal(refuses)
        if nudged.code:
            return verdict_on_failure("the script with weights changed by one rounding", exit_text(nudged))
        return None

    async def _compare(self, command: Sequence[str]) -> Verdict:
        first, nudged = step_arrays(self._order(ONE)), step_arrays(self._order(NUDGED))
        if not any(step for _, step in first):
            return Verdict("not comparable", NO_STEP)
        if (verdict := await self._verdict_on_reruns(command, first, nudged)) is not None:
            return verdict
        loops = loops_of(first)
        self.plan = self.plan or make_plan(loops, self._options.seed, epoch_ends(first))
        self._report_progress(f"with workers that come and go: --plan '{self.plan}' --seed {self._options.seed}")
        ended = await self._run_members(command)
        course = course_of(self._order(MEMBERS), len(first) - len(loops))
        if ended.code:
            step = (
                max((saved_step.step for saved_step, _ in saved_steps(self._order(MEMBERS).steps_folder)), default=0)
                + 1
            )
            return verdict_on_stop(step, failure_reason(ended), course.workers, course)
        verdict = await self._judge(command, first, nudged, course)
        error = script_error(self._order(MEMBERS), ended)
        return verdict if error is None else with_script_error(verdict, error)

    # ---- runs

    async def _run_alone(
        self, name: str, command: Sequence[str], nudge: bool = False, other_draws: bool = False
    ) -> EndedRun:
        order = self._order(name, nudge=nudge, other_draws=other_draws)
        path = order.write()
        watching = asyncio.create_task(self._watch(order, name)) if name == ONE else None
        try:
            return await run(command, self._environment(path), self._log(name), self._options.seconds)
        finally:
            if watching is not None:
                watching.cancel()

    async def _rule_findings(self, command: Sequence[str]) -> tuple[str, ...]:
        """Run the script with the rules on, and return the rules' findings; all other runs have the rules off."""
        order = self._order(RULES).model_copy(update={"rules": True})
        with contextlib.suppress(TooLong):
            await run(command, self._environment(order.write(), checks="warn"), self._log(RULES), self._options.seconds)
        return findings(self._log(RULES).read_text(errors="replace").splitlines())

    async def _run_members(self, command: Sequence[str]) -> EndedRun:
        assert self.plan is not None
        one = self._order(ONE)
        norms = one.norms_file if one.norms_file.exists() else None
        order = self._order(MEMBERS).model_copy(
            update={"norms": norms, "held": self.plan.steps, "kills": self.plan.kills}
        )
        order.write()
        launcher = [
            sys.executable,
            "-m",
            "dyntrain.training.trial.members",
            str(order.folder),
            str(self.plan),
            *command,
        ]
        watching = asyncio.create_task(self._watch(order, MEMBERS))
        try:
            return await run(launcher, self._environment(None), self._log(MEMBERS), self._options.seconds)
        finally:
            watching.cancel()

    def _order(self, name: str, nudge: bool = False, other_draws: bool = False) -> Order:
        options = self._options
        return Order(
            folder=self._folder / name,
            steps=options.steps,
            epochs=options.epochs,
            samples=options.samples,
            nudge=nudge,
            seed=options.seed,
            other_draws=other_draws,
        )

    def _environment(self, order: Path | None, checks: str = "off") -> Mapping[str, str]:
        """Return the environment variables of a run, which are like a worker's.

        A run uses only CPUs, and parallel runs share the CPU's threads. By default no rule stops a run, because the
        experiment compares numbers.
        """
        threads = str(max(1, (os.cpu_count() or 1) // 3))
        overrides = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads), "CUDA_VISIBLE_DEVICES": ""}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        order_variable = {} if order is None else {VARIABLE: str(order)}
        inherited = {name: value for name, value in os.environ.items() if name != CONTROL_FILE_VARIABLE}
        return {
            **inherited,
            **overrides,
            "PATH": path,
            "PYTHONUNBUFFERED": "1",
            "PYTHONHASHSEED": "0",
            CHECKS: checks,
            **order_variable,
        }

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    async def _watch(self, order: Order, name: str) -> None:
        shown = (0, 0)
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            last = max(
                (saved_step for saved_step, _ in saved_steps(order.steps_folder)),
                key=lambda saved_step: (saved_step.step, saved_step.generation),
                default=None,
            )
            if last is not None and (last.step, last.workers) > shown:
                shown = (last.step, last.workers)
                among = "" if name == ONE else f", {last.workers} worker{'' if last.workers == 1 else 's'}"
                self._report_progress(f"step {last.step}{among}")

    # ---- judging the runs

    async def _verdict_on_reruns(
        self, command: Sequence[str], first: Mapping[Key, Arrays], nudged: Mapping[Key, Arrays]
    ) -> Verdict | None:
        """Return a verdict if the script gives other results in each run, otherwise None.

        If rounding seems to have a large effect, a third run shows whether that is the cause.
        """
        first_key = min(first)
        rounding = Rounding()
        for key in first:
            rounding.add(relative_differences(first[key], nudged.get(key, {})))
        initial_difference = max(
            relative_differences(first[first_key], nudged.get(first_key, {})).values(), default=0.0
        )
        if not initial_difference and max(rounding.median_effect("w"), rounding.median_effect("g")) < SUSPECT:
            return None
        self._report_progress("in one process again, because one rounding has a large effect")
        rerun = await self._run_alone(AGAIN, command)
        if rerun.code:
            return verdict_on_failure("the script, a second time,", exit_text(rerun))
        divergence = first_divergence(first, step_arrays(self._order(AGAIN)))
        return None if divergence is None else verdict_on_rerun(divergence)

    async def _judge(
        self, command: Sequence[str], first: Mapping[Key, Arrays], nudged: Mapping[Key, Arrays], course: Course
    ) -> Verdict:
        members = member_files(self._order(MEMBERS))
        loaded = {key: [load(path) for _, path in each] for key, each in members.items()}
        comparison, variables = compare(first, nudged, loaded), Variables(first, nudged, loaded)
        if comparison.divergence is None:
            compared = [each for key, each in members.items() if comparison.blind is None or key < comparison.blind]
            most = max((saved_step.workers for each in compared for saved_step, _ in each), default=1)
            verdict_same = verdict_of_comparison(comparison, replace(course, most=most))
            if comparison.blind is not None:
                return verdict_same
            files = saved_differences(*(saved_arrays(self._order(name)) for name in (ONE, NUDGED, MEMBERS)))
            if files:
                return replace(
                    verdict_on_saved(files, comparison, course), others=names_text(variables.others(max(first)))
                )
            return replace(verdict_same, others=names_text(variables.different_at_end()))
        first_key = comparison.divergence.key
        same_draws = drew_alike(first.get(first_key, {}), loaded.get(first_key, ()))
        if not same_draws and (verdict := await self._verdict_on_draws(command, first, comparison)) is not None:
            return verdict
        worker_files = members.get(first_key)
        verdict = verdict_of_comparison(
            comparison, replace(course, workers=worker_files[0][0].workers) if worker_files else course
        )
        return replace(verdict, others=names_text(variables.others(first_key)))

    async def _verdict_on_draws(
        self, command: Sequence[str], first: Mapping[Key, Arrays], comparison: Comparison
    ) -> Verdict | None:
        divergence = comparison.divergence
        if divergence is None or divergence.missing:
            return None
        self._report_progress("in one process with other random draws, because the runs differ")
        ended = await self._run_alone(DRAWS, command, other_draws=True)
        other = step_arrays(self._order(DRAWS)).get(divergence.key)
        if ended.code or other is None:
            return None
        moved = relative_differences(first[divergence.key], other).get(divergence.name, 0.0)
        if moved < DRAWS_SHARE * divergence.difference:
            return None
        return verdict_on_draws(divergence, moved, comparison.rounding)
