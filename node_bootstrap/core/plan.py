"""The steps of the bootstrap, and the plan of those that are left, derived from their conditions. Pure.

Each step leaves something observable: on the host, on the shared volume, or in the bootstrap's memory, which a reboot
loses. A step that is observed as done is not repeated, so a run that was interrupted anywhere is continued by the next
one, in the same order. `python -m dyntrain.node_bootstrap plan` prints the plan.
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
    FAILED = "failed"  # its attempts are used up in this life


@dataclass(frozen=True)
class Condition:
    """Observed status of one step. `reason`: why it is not done yet."""

    status: Status
    reason: str = ""


DONE = Condition(Status.DONE)
FAILED = Condition(Status.FAILED)
UNSEEN = Condition(Status.LEFT, "it cannot be checked before an earlier step is done")


def pending(reason: str) -> Condition:
    """Condition of a step that is left to do."""
    return Condition(Status.LEFT, reason)


class Step(ABC):
    """One step: how to check it, how to carry it out, and why it is left. Each run of the bootstrap makes new ones."""

    name: ClassVar[str]
    needs: ClassVar[tuple[type[Step], ...]] = ()  # it cannot be checked before these are done
    host: ClassVar[bool] = False  # it makes the host ready: runs before everything else, and is retried on failure
    only_reads: ClassVar[bool] = False  # carried out even when the plan is only printed
    only_prepared: ClassVar[bool] = False  # skipped on a node where a step has failed: it must not train

    @abstractmethod
    async def check(self) -> Condition:
        """Check the step without changing anything. Never raises for what is absent."""

    @abstractmethod
    async def apply(self) -> None:
        """Carry out the step; may run twice. Raises NodeError or OSError."""


@dataclass(frozen=True)
class Planned:
    """A step that is left to do."""

    step: Step
    reason: str


def is_observable(step: Step, conditions: Mapping[Step, Condition]) -> bool:
    """Whether all steps that `step` needs are done. `conditions`: those of the steps before it."""
    done_types = {type(earlier) for earlier, condition in conditions.items() if condition.status is Status.DONE}
    return done_types.issuperset(step.needs)


def plan(conditions: Mapping[Step, Condition]) -> tuple[Planned, ...]:
    """The steps that are left, in the order of `conditions`.

    A node that could not be prepared reports that and stays, but does not signal that it is ready: it must not train.
    """
    failed = any(condition.status is Status.FAILED for condition in conditions.values())
    return tuple(
        Planned(step, condition.reason)
        for step, condition in conditions.items()
        if condition.status is Status.LEFT and not (failed and step.only_prepared)
    )


def finished(steps: Iterable[Step], planned: Sequence[Planned]) -> tuple[Step, ...]:
    """The steps that a plan leaves out."""
    remaining = {item.step for item in planned}
    return tuple(step for step in steps if step not in remaining)
