"""What a step of the bootstrap is, and what is left to do, derived from what is there. Pure.

Each step leaves something that can be seen: on the host, on the shared volume, or in the bootstrap's own memory, which
a reboot loses. What is seen is not done again, so a life that was cut short anywhere goes on with what is left, in the
same order. `python -m dyntrain.node_bootstrap plan` prints it.
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
    """What a look at one step found. `reason`: why it is left."""

    status: Status
    reason: str = ""


DONE = Condition(Status.DONE)
FAILED = Condition(Status.FAILED)
UNSEEN = Condition(Status.LEFT, "it cannot be seen before an earlier step is done")


def left(reason: str) -> Condition:
    return Condition(Status.LEFT, reason)


class Step(ABC):
    """What is looked for, what is done where that is not there, and why. Made anew for each life."""

    name: ClassVar[str]
    needs: ClassVar[tuple[type[Step], ...]] = ()  # it cannot be seen before these are done
    host: ClassVar[bool] = False  # it makes the host ready: before anything else runs, and tried again where it fails
    only_reads: ClassVar[bool] = False  # it is carried out for a plan that somebody only wants to see
    only_prepared: ClassVar[bool] = False  # not for a node on which a step has failed: that one must not train

    @abstractmethod
    async def look(self) -> Condition:
        """Changes nothing. Never raises for what is not there."""

    @abstractmethod
    async def do(self) -> None:
        """May be done twice. Raises NodeError or OSError."""


@dataclass(frozen=True)
class Planned:
    step: Step
    reason: str


def can_be_seen(step: Step, found: Mapping[Step, Condition]) -> bool:
    """`found`: of the steps before it."""
    done = {type(earlier) for earlier, condition in found.items() if condition.status is Status.DONE}
    return done.issuperset(step.needs)


def plan(found: Mapping[Step, Condition]) -> tuple[Planned, ...]:
    """The steps that are left, in the order of `found`. A node that could not be prepared reports that and stays, but
    signals nobody: it must not train.
    """
    failed = any(condition.status is Status.FAILED for condition in found.values())
    return tuple(
        Planned(step, condition.reason)
        for step, condition in found.items()
        if condition.status is Status.LEFT and not (failed and step.only_prepared)
    )


def done(steps: Iterable[Step], planned: Sequence[Planned]) -> tuple[Step, ...]:
    """The steps that a plan leaves out."""
    remaining = {item.step for item in planned}
    return tuple(step for step in steps if step not in remaining)
