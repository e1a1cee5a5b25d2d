"""Plan of an experiment: its membership changes and their steps. Pure.

A plan can be written as `3=3 6=kill1-before 9=2`: three workers after step 3, and two after step 9. In step 6, the
worker of rank 1 is killed before its gradients are summed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from dyntrain.training.trial_files import Kill, Moment

MOST = 8  # most workers on one machine
WORKERS_AFTER_JOINS, WORKERS_AFTER_LEAVE = 3, 2  # workers after the planned joins, and after the planned leave
WORD = re.compile(r"(\d+)=(?:(\d+)|kill(\d+)(?:-(before|after))?)")
SYNTAX = (
    "--plan {text!r}: give words like 3=3 (3 workers after step 3), 6=kill1 (rank 1 dies in step 6), each step once"
)


@dataclass(frozen=True)
class Change:
    """A change to `workers` workers after `step`."""

    step: int
    workers: int


@dataclass(frozen=True)
class Plan:
    """Changes and kills in the order of their steps, at most one per step.

    Steps are counted over all loops of the script.
    """

    changes: tuple[Change, ...] = ()
    kills: tuple[Kill, ...] = ()

    def __str__(self) -> str:
        words = {each.step: f"{each.step}={each.workers}" for each in self.changes}
        words |= {each.step: f"{each.step}=kill{each.rank}-{each.moment}" for each in self.kills}
        return " ".join(words[step] for step in sorted(words))

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps after which all workers wait until the planned change is made."""
        return tuple(sorted([each.step for each in self.changes] + [each.step for each in self.kills]))


def parse(text: str) -> Plan:
    """Return the plan that a text describes. Raises ValueError for an invalid text."""
    words = [WORD.fullmatch(word) for word in text.replace(",", " ").split()]
    plan = Plan(
        tuple(Change(int(word[1]), int(word[2])) for word in words if word and word[2]),
        tuple(
            Kill(step=int(word[1]), rank=int(word[3]), moment=cast(Moment, word[4] or "before"))
            for word in words
            if word and word[3]
        ),
    )
    steps = plan.steps
    if not words or None in words or len(set(steps)) < len(steps) or 0 in steps:
        raise ValueError(SYNTAX.format(text=text))
    if any(not 1 <= each.workers <= MOST for each in plan.changes):
        raise ValueError(f"--plan {text!r}: between 1 and {MOST} workers")
    return Plan(
        tuple(sorted(plan.changes, key=lambda change: change.step)),
        tuple(sorted(plan.kills, key=lambda kill: kill.step)),
    )


def make_plan(loops: Sequence[Sequence[int]], seed: int, epochs: Collection[int] = ()) -> Plan:
    """Make a plan for a script.

    `loops`: the steps of each loop. `epochs`: the last step of each epoch. In the longest loop, one worker joins within
    an epoch and one at an epoch's start. Then the first worker is killed and joins again within an epoch, and one
    worker leaves. A short loop has only the first of these changes. Between two loops the number of workers changes.
    The seed determines the steps.
    """
    rng = np.random.Generator(np.random.PCG64([seed, 1]))
    loop_ends = [loop[-1] for loop in loops[:-1] if loop]
    longest = max(loops, key=len, default=())
    inner_steps = [step for step in longest if step not in loop_ends][: len(longest) - 1]
    within_loop = _within(inner_steps, epochs, rng)
    number, changes = 1, list(within_loop.changes)
    for end in loop_ends:
        earlier_workers = [each.workers for each in changes if each.step < end]
        number = earlier_workers[-1] if earlier_workers else number
        changes.append(Change(end, 1 + number % WORKERS_AFTER_JOINS))
        changes.sort(key=lambda each: each.step)
    return Plan(tuple(changes), within_loop.kills)


def _within(steps: Sequence[int], epochs: Collection[int], rng: np.random.Generator) -> Plan:
    """Plan the changes within a loop.

    The first step has one worker, and about a quarter of the steps follow each change. After a kill before the sum, the
    survivors must undo the step; a kill after the sum demands less of a script.
    """
    count = len(steps)
    if not count:
        return Plan()
    quarter = max(1, (count + 1) // 4)
    positions = [quarter * number - 1 + int(rng.integers(0, max(1, quarter - 1))) for number in (1, 2, 3)]
    first, kill, last = (steps[place] if place < count else 0 for place in positions)
    first = _nearest(first, [step for step in steps if step < kill], lambda step: step in epochs)
    # the killed worker is back after the next step
    kill = _nearest(
        kill, [step for step in steps if first < step < last], lambda step: step in epochs or step + 1 in epochs
    )
    epoch_starts = [step for step in steps if first < step < kill and step in epochs][:1]
    changes = [
        Change(first, WORKERS_AFTER_JOINS - len(epoch_starts)),
        *(Change(step, WORKERS_AFTER_JOINS) for step in epoch_starts),
    ]
    changes += [Change(last, WORKERS_AFTER_LEAVE)] if last else []
    return Plan(tuple(changes), (Kill(step=kill, rank=0, moment="before"),) if kill else ())


def _nearest(step: int, candidates: Sequence[int], is_avoided: Callable[[int], bool]) -> int:
    """Return the step of `candidates` that is nearest to `step` and not avoided; `step` if there is none."""
    return min((each for each in candidates if not is_avoided(each)), key=lambda each: abs(each - step), default=step)
