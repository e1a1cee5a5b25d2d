"""The plan of a fault hunt: the faults and the users' changes, each with its time. All functions are pure; the seed and
the duration determine the plan.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

MEAN_SECONDS_BETWEEN_FAULTS = 3.0
MEAN_SECONDS_BETWEEN_CHANGES = 7.0
MEAN_SECONDS_BETWEEN_CUTS = 20.0
MEAN_SECONDS_BETWEEN_SLOW_LINKS = 40.0
MEAN_SECONDS_BETWEEN_STALLS = 120.0
LONGEST_STALL = 120.0
LONGEST_FREEZE = 40.0  # longer than all deadlines after which a silent process counts as dead
SERVICES = ("ec2", "autoscaling", "ssm", "dynamodb", "events")


class Victim(StrEnum):
    """A kind of process that faults hit."""

    HANDLER = "handler"
    BOOTSTRAP = "bootstrap"
    COORDINATOR = "coordinator"
    WORKER = "worker"
    PSLITE = "ps-lite"
    MACHINE = "machine"  # a machine's init process: the whole node goes down and boots again


@dataclass(frozen=True)
class Kill:
    """A SIGKILL for a process of the kind `victim`. `pick`, from 0 to 1, chooses the process. `at` is in seconds after
    the start.
    """

    at: float
    victim: Victim
    pick: float


@dataclass(frozen=True)
class Freeze:
    """A SIGSTOP for a process, and a SIGCONT `seconds` later. `pick`, from 0 to 1, chooses the process."""

    at: float
    victim: Victim
    pick: float
    seconds: float


@dataclass(frozen=True)
class Throttle:
    """A throttled AWS service: for `seconds`, the cloud refuses the given `fraction` of the calls to `service`."""

    at: float
    service: str
    fraction: float
    seconds: float


@dataclass(frozen=True)
class Cut:
    """A cut network link of a host, for `seconds`. `pick`, from 0 to 1, chooses the host."""

    at: float
    pick: float
    seconds: float


@dataclass(frozen=True)
class Slow:
    """A slow network link of a host: for `seconds`, the link carries only `megabits` a second. `pick`, from 0 to 1,
    chooses the host.
    """

    at: float
    pick: float
    megabits: float
    seconds: float


@dataclass(frozen=True)
class Stall:
    """A hanging volume: for `seconds`, writers to the shared volume wait."""

    at: float
    seconds: float


Fault = Kill | Freeze | Throttle | Cut | Slow | Stall


class Wish(StrEnum):
    LAUNCH = "launch"  # an instance from the launch template
    UNTAG = "untag"
    RETAG = "retag"  # an instance that was untagged and still runs
    CAPACITY = "capacity"


@dataclass(frozen=True)
class Change:
    """A change by a simulated user. `pick`, from 0 to 1, chooses the instance; `size` is the desired capacity."""

    at: float
    wish: Wish
    pick: float
    size: int


# (victim, relative frequency). Victims whose recovery takes long are rare.
KILL_WEIGHTS = (
    (Victim.HANDLER, 4),
    (Victim.WORKER, 4),
    (Victim.BOOTSTRAP, 2),
    (Victim.PSLITE, 2),
    (Victim.COORDINATOR, 2),
    (Victim.MACHINE, 1),
)
FREEZE_WEIGHTS = (
    (Victim.HANDLER, 2),
    (Victim.WORKER, 3),
    (Victim.BOOTSTRAP, 2),
    (Victim.PSLITE, 2),
    (Victim.COORDINATOR, 2),
)
CHANGE_WEIGHTS = ((Wish.LAUNCH, 3), (Wish.UNTAG, 3), (Wish.RETAG, 1), (Wish.CAPACITY, 3))


def faults(seed: int, duration: float, links: bool = False, volume: bool = False) -> tuple[Fault, ...]:
    """The faults in order of time, from 0 to `duration` seconds. With `links`, some faults cut or slow a link. With
    `volume`, some faults make the volume hang. `links` and `volume` only add faults.
    """
    chance = random.Random(f"faults {seed}")

    longest = min(LONGEST_FREEZE, duration / 5)

    def fault(at: float) -> Fault:
        kind = chance.random()
        if kind < 0.6:
            return Kill(at, _random_choice(chance, KILL_WEIGHTS), chance.random())
        if kind < 0.9:
            return Freeze(
                at, _random_choice(chance, FREEZE_WEIGHTS), chance.random(), _random_duration(chance, longest)
            )
        return Throttle(at, chance.choice(SERVICES), chance.uniform(0.3, 0.9), _random_duration(chance, 8.0))

    planned: list[Fault] = [fault(at) for at in _random_times(chance, duration, MEAN_SECONDS_BETWEEN_FAULTS)]
    if links:
        planned += [
            Cut(at, chance.random(), _random_duration(chance, longest))
            for at in _random_times(chance, duration, MEAN_SECONDS_BETWEEN_CUTS)
        ]
        chance = random.Random(f"slow links {seed}")
        planned += [
            Slow(at, chance.random(), chance.choice((5.0, 20.0, 100.0)), _random_duration(chance, longest))
            for at in _random_times(chance, duration, MEAN_SECONDS_BETWEEN_SLOW_LINKS)
        ]
    if volume:
        chance, longest_stall = random.Random(f"volume {seed}"), min(LONGEST_STALL, duration / 5)
        planned += [
            Stall(at, _random_duration(chance, longest_stall))
            for at in _random_times(chance, duration, MEAN_SECONDS_BETWEEN_STALLS)
        ]
    return tuple(sorted(planned, key=lambda planned_fault: planned_fault.at))


def changes(seed: int, duration: float, largest: int) -> tuple[Change, ...]:
    """The users' changes in order of time. Desired capacities are from 0 to `largest`."""
    chance = random.Random(f"changes {seed}")

    def change(at: float) -> Change:
        return Change(at, _random_choice(chance, CHANGE_WEIGHTS), chance.random(), chance.randint(0, largest))

    return tuple(change(at) for at in _random_times(chance, duration, MEAN_SECONDS_BETWEEN_CHANGES))


P = TypeVar("P", bound=Fault | Change)


def stretch(planned: Sequence[P], factor: float, duration: float) -> tuple[P, ...]:
    """Stretch the plan by `factor`, for a slow host, and drop entries that then come after `duration`. Without
    stretching, no worker of a slow host would reach its first step between two faults, and the job would rightly give
    up.
    """
    return tuple(replace(entry, at=entry.at * factor) for entry in planned if entry.at * factor < duration)


def _random_times(chance: random.Random, duration: float, mean: float) -> list[float]:
    times = []
    at = chance.uniform(0.3, 1.7) * mean
    while at < duration:
        times.append(at)
        at += chance.uniform(0.3, 1.7) * mean
    return times


def _random_duration(chance: random.Random, longest: float) -> float:
    """A random duration in seconds: mostly short, sometimes close to `longest`."""
    return 0.5 + (longest - 0.5) * chance.random() ** 2


T = TypeVar("T")


def _random_choice(chance: random.Random, weighted_values: Sequence[tuple[T, int]]) -> T:
    return chance.choices([value for value, _ in weighted_values], [weight for _, weight in weighted_values])[0]
