"""Defines the steps that prepare and run a node, and the plan: the list of the steps that are left. Pure.

Each step leaves a result that can be checked: on the host, on the shared volume, or (until the program ends) in the
memory of the node's program. A step whose result exists is not repeated, so after an interruption the next run of the
program continues where the interrupted run stopped. `python -m dyntrain.node_bootstrap plan` prints the plan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar


class StepStatus(Enum):
    DONE = "done"  # or there is nothing to do
    LEFT = "left"  # still to be carried out
    FAILED = "failed"  # all its attempts in this run have failed


@dataclass(frozen=True)
class StepCondition:
    """Status of a step, as `Step.check` found it, and why the step is not done yet."""

    status: StepStatus
    reason: str = ""  # why the step is not done yet


DONE = StepCondition(StepStatus.DONE)
FAILED = StepCondition(StepStatus.FAILED)
UNCHECKED = StepCondition(StepStatus.LEFT, "the step cannot be checked before an earlier step is done")


def pending(reason: str) -> StepCondition:
    """Return the condition of a step that is left to do."""
    return StepCondition(StepStatus.LEFT, reason)


class Step(ABC):
    """A step of the bootstrap, with a method that checks whether the step is done and a method that carries it out.

    Each run of the bootstrap makes new step objects.
    """

    step_name: ClassVar[str]
    needed_steps: ClassVar[tuple[type[Step], ...]] = ()  # steps that must be done before this one can be checked
    prepares_host: ClassVar[bool] = False  # the step makes the host ready: it runs first, and is retried on failure
    only_reads: ClassVar[bool] = False  # the step is carried out even when the plan is only printed
    skipped_after_failure: ClassVar[bool] = (
        False  # a node where a step has failed skips this step: such a node must not train
    )

    @abstractmethod
    async def check(self) -> StepCondition:
        """Check whether the step is done, without changing anything.

        If the step's result is missing, `check` returns a condition that says so, and raises no error.
        """

    @abstractmethod
    async def carry_out_step(self) -> None:
        """Carry out the step, even if it was already carried out earlier. Raises NodeError or OSError."""


@dataclass(frozen=True)
class PlannedStep:
    """A step that is left to do, and why it is not done yet."""

    step: Step
    reason: str  # why the step is not done yet


def can_be_checked(step: Step, conditions: Mapping[Step, StepCondition]) -> bool:
    """Whether all steps that `step` needs are done. `conditions` contains the conditions of the steps before `step`."""
    done_step_types = {
        type(earlier_step) for earlier_step, condition in conditions.items() if condition.status is StepStatus.DONE
    }
    return done_step_types.issuperset(step.needed_steps)


def plan(conditions: Mapping[Step, StepCondition]) -> tuple[PlannedStep, ...]:
    """Return the steps that are left, in the order of `conditions`.

    If a step has failed, the plan omits steps with `skipped_after_failure`, since a node with a failed step must not
    train.
    """
    has_failed_step = any(condition.status is StepStatus.FAILED for condition in conditions.values())
    return tuple(
        PlannedStep(step, condition.reason)
        for step, condition in conditions.items()
        if condition.status is StepStatus.LEFT and not (has_failed_step and step.skipped_after_failure)
    )


def finished_steps(steps: Iterable[Step], planned: Sequence[PlannedStep]) -> tuple[Step, ...]:
    """Return those of `steps` that are not in the plan `planned`."""
    remaining_steps = {planned_step.step for planned_step in planned}
    return tuple(step for step in steps if step not in remaining_steps)
