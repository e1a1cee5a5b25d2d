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
    draws_match,
    first_divergence,
    relative_differences,
)
from dyntrain.training.trial.plan import TrialPlan, make_plan
from dyntrain.training.trial.processes import EndedRun, RunTooLong, run
from dyntrain.training.trial.results import (
    counts_of_run,
    epoch_ends,
    exit_text,
    failure_reason,
    load_arrays,
    loops_of,
    member_files,
    refusal_reason,
    saved_arrays,
    script_error,
    step_arrays,
)
from dyntrain.training.trial.variables import Variables, names_text, saved_differences
from dyntrain.training.trial.verdict import (
    NO_STEP_SENTENCE,
    PER_WORKER_SENTENCE,
    RunCounts,
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

ONE, NUDGED, AGAIN, DRAWS = "one-process", "nudged", "again", "other-draws"  # names of the runs in one process
MEMBERS, RULES = "members", "rules"  # names of the run on several workers, and of the run with rules
CHECKS_VARIABLE = "DYNTRAIN_CHECKS"  # variable that sets whether rules are off, warn, or stop the job
IN_ONE_PROCESS = "the script in one process"
CHECK_SECONDS = 0.5  # seconds between two looks at a run's progress
SUSPECT_EFFECT = 1e-5  # a larger effect of rounding is examined, because the script may differ from run to run
DRAWS_SHARE = 0.1  # random draws that cause at least this share of a difference may be its cause


@dataclass(frozen=True)
class Options:
    """Options of an experiment.

    If `plan` is None, a plan of membership changes is made from the seed and the script's steps.
    """

    command: Sequence[str]  # the script's command
    steps: int = 12  # most steps of a loop
    epochs: int | None = None  # most epochs of a loop
    samples: int | None = None  # samples of an epoch
    plan: TrialPlan | None = None  # membership changes; None: made from the seed
    seed: int = 0  # of the plan and of the nudge
    seconds: float = 600.0  # time limit of each run


class Experiment:
    """One experiment of `dyntrain check`.

    `folder`: the folder of the experiment's own files; files that the script writes go to the current folder.
    """

    def __init__(self, options: Options, folder: Path, report_progress: Callable[[str], None]) -> None:
        self._options, self._folder, self._report_progress = options, folder, report_progress
        self.plan = options.plan

    async def verdict(self) -> Verdict:
        """Run the experiment and return its verdict. Raises LaunchError if the command cannot be run."""
        launch_options = parse_launch(["-n", "1", "--launcher", "local", *self._options.command])
        try:
            return await self._run_all(launch_options.command)
        except RunTooLong:
            limit_text = f"{self._options.seconds:.0f} s"
            return verdict_on_failure(
                "a run", f"did not end within {limit_text}: set fewer --steps or --samples, or more --seconds"
            )

    async def _run_all(self, command: Sequence[str]) -> Verdict:
        self._report_progress("in one process, and again with initial weights changed by one rounding")
        one_run, nudged_run, rule_findings = await asyncio.gather(
            self._run_alone(ONE, command), self._run_alone(NUDGED, command, nudge=True), self._rule_findings(command)
        )
        return with_findings(
            self._verdict_on_failed_run(one_run, nudged_run) or await self._compare_runs(command), rule_findings
        )

    def _verdict_on_failed_run(self, one_run: EndedRun, nudged_run: EndedRun) -> Verdict | None:
        if self._order(ONE).varying_batch_file.exists():
            return Verdict("not comparable", PER_WORKER_SENTENCE)
        if one_run.code:
            refusal_text = refusal_reason(one_run)
            return (
                verdict_on_failure(IN_ONE_PROCESS, exit_text(one_run))
                if refusal_text is None
                else verdict_on_refusal(refusal_text)
            )
        if nudged_run.code:
            return verdict_on_failure("the script with weights changed by one rounding", exit_text(nudged_run))
        return None

    async def _compare_runs(self, command: Sequence[str]) -> Verdict:
        one_arrays, nudged_arrays = step_arrays(self._order(ONE)), step_arrays(self._order(NUDGED))
        if not any(step for _, step in one_arrays):
            return Verdict("not comparable", NO_STEP_SENTENCE)
        if (verdict := await self._verdict_on_reruns(command, one_arrays, nudged_arrays)) is not None:
            return verdict
        loops = loops_of(one_arrays)
        self.plan = self.plan or make_plan(loops, self._options.seed, epoch_ends(one_arrays))
        self._report_progress(f"with workers that come and go: --plan '{self.plan}' --seed {self._options.seed}")
        ended_run = await self._run_members(command)
        counts = counts_of_run(self._order(MEMBERS), len(one_arrays) - len(loops))
        if ended_run.code:
            failed_step = (
                max((saved_step.step for saved_step, _ in saved_steps(self._order(MEMBERS).steps_folder)), default=0)
                + 1
            )
            return verdict_on_stop(failed_step, failure_reason(ended_run), counts.workers, counts)
        verdict = await self._verdict_on_members(command, one_arrays, nudged_arrays, counts)
        error_text = script_error(self._order(MEMBERS), ended_run)
        return verdict if error_text is None else with_script_error(verdict, error_text)

    # ---- runs

    async def _run_alone(
        self, name: str, command: Sequence[str], nudge: bool = False, other_draws: bool = False
    ) -> EndedRun:
        order = self._order(name, nudge=nudge, other_draws=other_draws)
        order_file = order.write()
        watch_task = asyncio.create_task(self._report_steps(order, name)) if name == ONE else None
        try:
            return await run(command, self._environment(order_file), self._log(name), self._options.seconds)
        finally:
            if watch_task is not None:
                watch_task.cancel()

    async def _rule_findings(self, command: Sequence[str]) -> tuple[str, ...]:
        """Run the script once with the rules of `dyntrain.training.checks` on, and return the findings. In runs that
        are compared, the rules of `dyntrain.training.checks` are off.
        """
        order = self._order(RULES).model_copy(update={"rules": True})
        with contextlib.suppress(RunTooLong):
            await run(command, self._environment(order.write(), checks="warn"), self._log(RULES), self._options.seconds)
        return findings(self._log(RULES).read_text(errors="replace").splitlines())

    async def _run_members(self, command: Sequence[str]) -> EndedRun:
        assert self.plan is not None
        one_order = self._order(ONE)
        norms_file = one_order.norms_file if one_order.norms_file.exists() else None
        order = self._order(MEMBERS).model_copy(
            update={"norms": norms_file, "held": self.plan.steps, "kills": self.plan.kills}
        )
        order.write()
        launch_command = [
            sys.executable,
            "-m",
            "dyntrain.training.trial.members",
            str(order.folder),
            str(self.plan),
            *command,
        ]
        watch_task = asyncio.create_task(self._report_steps(order, MEMBERS))
        try:
            return await run(launch_command, self._environment(None), self._log(MEMBERS), self._options.seconds)
        finally:
            watch_task.cancel()

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

    def _environment(self, order_file: Path | None, checks: str = "off") -> Mapping[str, str]:
        """Return the environment variables of a run, which are like those of a job's worker.

        A run uses only CPUs, and parallel runs share the CPU's threads. By default the rules of
        `dyntrain.training.checks` are off, because a rule that stops a run would prevent the comparison.
        """
        thread_count = str(max(1, (os.cpu_count() or 1) // 3))
        overrides = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", thread_count), "CUDA_VISIBLE_DEVICES": ""}
        search_path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        order_variable = {} if order_file is None else {VARIABLE: str(order_file)}
        inherited_variables = {name: value for name, value in os.environ.items() if name != CONTROL_FILE_VARIABLE}
        return {
            **inherited_variables,
            **overrides,
            "PATH": search_path,
            "PYTHONUNBUFFERED": "1",
            "PYTHONHASHSEED": "0",
            CHECKS_VARIABLE: checks,
            **order_variable,
        }

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    async def _report_steps(self, order: Order, name: str) -> None:
        shown_progress = (0, 0)
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            last_step = max(
                (saved_step for saved_step, _ in saved_steps(order.steps_folder)),
                key=lambda saved_step: (saved_step.step, saved_step.generation),
                default=None,
            )
            if last_step is not None and (last_step.step, last_step.workers) > shown_progress:
                shown_progress = (last_step.step, last_step.workers)
                workers_text = (
                    "" if name == ONE else f", {last_step.workers} worker{'' if last_step.workers == 1 else 's'}"
                )
                self._report_progress(f"step {last_step.step}{workers_text}")

    # ---- judging the runs

    async def _verdict_on_reruns(
        self, command: Sequence[str], one_arrays: Mapping[Key, Arrays], nudged_arrays: Mapping[Key, Arrays]
    ) -> Verdict | None:
        """Return a verdict if two equal runs of the script in one process give different results, otherwise None.

        The script is run again only if the nudged run has other initial weights than the first run, or later differs
        much from the first run, because such a difference may have another cause than rounding.
        """
        first_key = min(one_arrays)
        rounding = Rounding()
        for key in one_arrays:
            rounding.add(relative_differences(one_arrays[key], nudged_arrays.get(key, {})))
        initial_difference = max(
            relative_differences(one_arrays[first_key], nudged_arrays.get(first_key, {})).values(), default=0.0
        )
        if not initial_difference and max(rounding.median_effect("w"), rounding.median_effect("g")) < SUSPECT_EFFECT:
            return None
        self._report_progress("in one process again, because one rounding has a large effect")
        rerun = await self._run_alone(AGAIN, command)
        if rerun.code:
            return verdict_on_failure("the script, a second time,", exit_text(rerun))
        divergence = first_divergence(one_arrays, step_arrays(self._order(AGAIN)))
        return None if divergence is None else verdict_on_rerun(divergence)

    async def _verdict_on_members(
        self,
        command: Sequence[str],
        one_arrays: Mapping[Key, Arrays],
        nudged_arrays: Mapping[Key, Arrays],
        counts: RunCounts,
    ) -> Verdict:
        files_by_step = member_files(self._order(MEMBERS))
        arrays_by_step = {
            key: [load_arrays(path) for _, path in step_files] for key, step_files in files_by_step.items()
        }
        comparison, variables = (
            compare(one_arrays, nudged_arrays, arrays_by_step),
            Variables(one_arrays, nudged_arrays, arrays_by_step),
        )
        if comparison.divergence is None:
            compared_files = [
                step_files
                for key, step_files in files_by_step.items()
                if comparison.blind is None or key < comparison.blind
            ]
            most_workers = max(
                (saved_step.workers for step_files in compared_files for saved_step, _ in step_files), default=1
            )
            equal_verdict = verdict_of_comparison(comparison, replace(counts, most=most_workers))
            if comparison.blind is not None:
                return equal_verdict
            file_differences = saved_differences(*(saved_arrays(self._order(name)) for name in (ONE, NUDGED, MEMBERS)))
            if file_differences:
                return replace(
                    verdict_on_saved(file_differences, comparison, counts),
                    others=names_text(variables.differing_variables(max(one_arrays))),
                )
            return replace(equal_verdict, others=names_text(variables.arrays_differing_at_end()))
        diverging_key = comparison.divergence.key
        same_draws = draws_match(one_arrays.get(diverging_key, {}), arrays_by_step.get(diverging_key, ()))
        if not same_draws and (verdict := await self._verdict_on_draws(command, one_arrays, comparison)) is not None:
            return verdict
        worker_files = files_by_step.get(diverging_key)
        verdict = verdict_of_comparison(
            comparison, replace(counts, workers=worker_files[0][0].workers) if worker_files else counts
        )
        return replace(verdict, others=names_text(variables.differing_variables(diverging_key)))

    async def _verdict_on_draws(
        self, command: Sequence[str], one_arrays: Mapping[Key, Arrays], comparison: Comparison
    ) -> Verdict | None:
        divergence = comparison.divergence
        if divergence is None or divergence.missing:
            return None
        self._report_progress("in one process with other random draws, because the runs differ")
        ended_run = await self._run_alone(DRAWS, command, other_draws=True)
        redrawn_arrays = step_arrays(self._order(DRAWS)).get(divergence.key)
        if ended_run.code or redrawn_arrays is None:
            return None
        draw_effect = relative_differences(one_arrays[divergence.key], redrawn_arrays).get(divergence.name, 0.0)
        if draw_effect < DRAWS_SHARE * divergence.difference:
            return None
        return verdict_on_draws(divergence, draw_effect, comparison.rounding)
