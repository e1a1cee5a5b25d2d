"""Plan of an experiment: its membership changes and their steps. Pure.

A plan can be written as `3=3 6=kill1-before 9=2`: three workers after step 3, the worker of rank 1 killed in step 6
before its gradients are summed, and two workers after step 9.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from dyntrain.training.trial_files import Kill, Moment

MOST_WORKERS = 8  # most workers on one machine
WORKERS_AFTER_JOINS, WORKERS_AFTER_LEAVE = 3, 2  # workers after the planned joins, and after the planned leave
CHANGE_PATTERN = re.compile(r"(\d+)=(?:(\d+)|kill(\d+)(?:-(before|after))?)")
SYNTAX_ERROR = (
    "--plan {text!r}: give words like 3=3 (3 workers after step 3), 6=kill1 (rank 1 dies in step 6), each step once"
)


@dataclass(frozen=True)
class WorkerChange:
    """A change of the number of workers to `workers`, after the step `step`."""

    step: int  # number of the step
    workers: int  # number of workers after the step


@dataclass(frozen=True)
class TrialPlan:
    """Changes of the number of workers, and kills of workers, in the order of their steps.

    Each step has at most one change or kill. Steps are counted over all loops of the script.
    """

    changes: tuple[WorkerChange, ...] = ()  # of the number of workers
    kills: tuple[Kill, ...] = ()  # of workers

    def __str__(self) -> str:
        text_by_step = {change.step: f"{change.step}={change.workers}" for change in self.changes}
        text_by_step |= {kill.step: f"{kill.step}=kill{kill.rank}-{kill.moment}" for kill in self.kills}
        return " ".join(text_by_step[step] for step in sorted(text_by_step))

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps after which all workers wait until a planned change, or the restart of a killed worker, is complete."""
        return tuple(sorted([change.step for change in self.changes] + [kill.step for kill in self.kills]))


def parse(text: str) -> TrialPlan:
    """Return the plan that a text describes. Raises ValueError for an invalid text."""
    word_matches = [CHANGE_PATTERN.fullmatch(word) for word in text.replace(",", " ").split()]
    plan = TrialPlan(
        tuple(
            WorkerChange(int(word_match[1]), int(word_match[2]))
            for word_match in word_matches
            if word_match and word_match[2]
        ),
        tuple(
            Kill(step=int(word_match[1]), rank=int(word_match[3]), moment=cast(Moment, word_match[4] or "before"))
            for word_match in word_matches
            if word_match and word_match[3]
        ),
    )
    steps = plan.steps
    if not word_matches or None in word_matches or len(set(steps)) < len(steps) or 0 in steps:
        raise ValueError(SYNTAX_ERROR.format(text=text))
    if any(not 1 <= change.workers <= MOST_WORKERS for change in plan.changes):
        raise ValueError(f"--plan {text!r}: must have between 1 and {MOST_WORKERS} workers")
    return TrialPlan(
        tuple(sorted(plan.changes, key=lambda change: change.step)),
        tuple(sorted(plan.kills, key=lambda kill: kill.step)),
    )


def make_plan(loops: Sequence[Sequence[int]], seed: int, epochs: Collection[int] = ()) -> TrialPlan:
    """Make a plan of membership changes for a script.

    `loops`: the numbers of the steps in each loop over epochs. `epochs`: the number of the last step of each epoch. In
    the longest loop, one worker joins within an epoch, and one worker joins at an epoch's start. Later in the longest
    loop, the worker of rank 0 is killed and joins again within an epoch, and finally one worker leaves. If the longest
    loop is too short for all changes, the last changes are left out. Between two loops, the number of workers changes.
    The seed determines at which steps the membership changes come.
    """
    random_generator = np.random.Generator(np.random.PCG64([seed, 1]))
    loop_ends = [loop[-1] for loop in loops[:-1] if loop]
    longest_loop = max(loops, key=len, default=())
    inner_steps = [step for step in longest_loop if step not in loop_ends][: len(longest_loop) - 1]
    loop_plan = _plan_of_loop(inner_steps, epochs, random_generator)
    worker_count, changes = 1, list(loop_plan.changes)
    for loop_end in loop_ends:
        earlier_counts = [change.workers for change in changes if change.step < loop_end]
        worker_count = earlier_counts[-1] if earlier_counts else worker_count
        changes.append(WorkerChange(loop_end, 1 + worker_count % WORKERS_AFTER_JOINS))
        changes.sort(key=lambda change: change.step)
    return TrialPlan(tuple(changes), loop_plan.kills)


def _plan_of_loop(steps: Sequence[int], epochs: Collection[int], random_generator: np.random.Generator) -> TrialPlan:
    """Plan the membership changes within one loop over epochs.

    The loop begins with one worker, and about a quarter of its steps lie between two changes. The kill comes before the
    killed worker's gradients are summed, because then the surviving workers must undo the step.
    """
    step_count = len(steps)
    if not step_count:
        return TrialPlan()
    quarter = max(1, (step_count + 1) // 4)
    positions = [quarter * number - 1 + int(random_generator.integers(0, max(1, quarter - 1))) for number in (1, 2, 3)]
    first_step, kill_step, last_step = (steps[position] if position < step_count else 0 for position in positions)
    first_step = _nearest_step(first_step, [step for step in steps if step < kill_step], lambda step: step in epochs)
    # the killed worker is back after the next step
    kill_step = _nearest_step(
        kill_step,
        [step for step in steps if first_step < step < last_step],
        lambda step: step in epochs or step + 1 in epochs,
    )
    epoch_starts = [step for step in steps if first_step < step < kill_step and step in epochs][:1]
    changes = [
        WorkerChange(first_step, WORKERS_AFTER_JOINS - len(epoch_starts)),
        *(WorkerChange(step, WORKERS_AFTER_JOINS) for step in epoch_starts),
    ]
    changes += [WorkerChange(last_step, WORKERS_AFTER_LEAVE)] if last_step else []
    return TrialPlan(tuple(changes), (Kill(step=kill_step, rank=0, moment="before"),) if kill_step else ())


def _nearest_step(step: int, candidates: Sequence[int], is_avoided: Callable[[int], bool]) -> int:
    """Return the nearest step to `step` in `candidates` for which `is_avoided` is false, or `step` if all
    are avoided.
    """
    return min(
        (candidate for candidate in candidates if not is_avoided(candidate)),
        key=lambda candidate: abs(candidate - step),
        default=step,
    )
