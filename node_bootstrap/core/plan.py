"""The steps of the bootstrap, and the plan, which lists the steps that are left. Pure.

Each step leaves an observable result: on the host, on the shared volume, or in the bootstrap's memory, which a reboot
erases. A step with a result is not repeated, so the next run continues after an interruption, in the same order.
`python -m dyntrain.node_bootstrap plan` prints the plan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar


class Status(Enum):
    DONE = "done"  # or there is nothing to do
    LEFT = "left"
    FAILED = "failed"  # all its attempts in this run have failed


@dataclass(frozen=True)
class Condition:
    """Observed status of one step. `reason`: why the step is not done yet."""

    status: Status
    reason: str = ""


DONE = Condition(Status.DONE)
FAILED = Condition(Status.FAILED)
UNSEEN = Condition(Status.LEFT, "the step cannot be checked before an earlier step is done")


def pending(reason: str) -> Condition:
    """Condition of a step that is left to do."""
    return Condition(Status.LEFT, reason)


class Step(ABC):
    """A step, which can be checked and carried out. Each run of the bootstrap makes new step objects."""

    name: ClassVar[str]
    needs: ClassVar[tuple[type[Step], ...]] = ()  # steps that must be done before this one can be checked
    host: ClassVar[bool] = False  # the step makes the host ready: it runs first, and is retried on failure
    only_reads: ClassVar[bool] = False  # the step is carried out even when the plan is only printed
    only_prepared: ClassVar[bool] = (
        False  # the step is skipped on a node where a step has failed: that node must not train
    )

    @abstractmethod
    async def check(self) -> Condition:
        """Check the step without changing anything. A missing result raises no error."""

    @abstractmethod
    async def apply(self) -> None:
        """Carry out the step; this may run twice. Raises NodeError or OSError."""


@dataclass(frozen=True)
class Planned:
    """A step that is left to do."""

    step: Step
    reason: str


def is_observable(step: Step, conditions: Mapping[Step, Condition]) -> bool:
    """Whether all steps that `step` needs are done. `conditions` has the conditions of the earlier steps."""
    done_types = {type(earlier) for earlier, condition in conditions.items() if condition.status is Status.DONE}
    return done_types.issuperset(step.needs)


def plan(conditions: Mapping[Step, Condition]) -> tuple[Planned, ...]:
    """Return the steps that are left, in the order of `conditions`.

    After a failed step, steps with `only_prepared` are left out: a node that could not be prepared must not train.
    """
    failed = any(condition.status is Status.FAILED for condition in conditions.values())
    return tuple(
        Planned(step, condition.reason)
        for step, condition in conditions.items()
        if condition.status is Status.LEFT and not (failed and step.only_prepared)
    )


def finished(steps: Iterable[Step], planned: Sequence[Planned]) -> tuple[Step, ...]:
    """Return the steps that are not in the plan."""
    remaining = {item.step for item in planned}
    return tuple(step for step in steps if step not in remaining)
