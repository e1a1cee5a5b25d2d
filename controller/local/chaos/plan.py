"""The plan of a hunt: which faults happen when, and what people change. A pure function of the seed and the
duration.
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
LONGEST_FREEZE = 40.0  # beyond the liveness deadlines of everything that watches a process
SERVICES = ("ec2", "autoscaling", "ssm", "dynamodb", "events")


class Victim(StrEnum):
    """A kind of process that faults hit."""

    HANDLER = "handler"
    BOOTSTRAP = "bootstrap"
    COORDINATOR = "coordinator"
    WORKER = "worker"
    PSLITE = "ps-lite"
    MACHINE = "machine"  # the init process: the whole node goes down and boots again


@dataclass(frozen=True)
class Kill:
    """A SIGKILL. `pick`, from 0 to 1, chooses among the processes of that kind."""

    at: float
    victim: Victim
    pick: float


@dataclass(frozen=True)
class Freeze:
    """A SIGSTOP, and SIGCONT after `seconds`."""

    at: float
    victim: Victim
    pick: float
    seconds: float


@dataclass(frozen=True)
class Throttle:
    """A time of `seconds` in which `fraction` of the calls to `service` are refused."""

    at: float
    service: str
    fraction: float
    seconds: float


@dataclass(frozen=True)
class Cut:
    """A time of `seconds` in which the link of a host is down. `pick` as in Kill."""

    at: float
    pick: float
    seconds: float


@dataclass(frozen=True)
class Slow:
    """A time of `seconds` in which the link of a host carries only `megabits` a second. `pick` as in Kill."""

    at: float
    pick: float
    megabits: float
    seconds: float


@dataclass(frozen=True)
class Stall:
    """A time of `seconds` in which writers to the shared volume wait."""

    at: float
    seconds: float


Fault = Kill | Freeze | Throttle | Cut | Slow | Stall


class Wish(StrEnum):
    LAUNCH = "launch"  # an instance from the launch template
    UNTAG = "untag"
    RETAG = "retag"  # one that was untagged and still runs
    CAPACITY = "capacity"


@dataclass(frozen=True)
class Change:
    """What a person does. `pick`, from 0 to 1, chooses the instance; `size` is the desired capacity."""

    at: float
    wish: Wish
    pick: float
    size: int


# (victim, how often relative to the others): what a kill or freeze costs in recovery is long for the rare ones
KILLED = (
    (Victim.HANDLER, 4),
    (Victim.WORKER, 4),
    (Victim.BOOTSTRAP, 2),
    (Victim.PSLITE, 2),
    (Victim.COORDINATOR, 2),
    (Victim.MACHINE, 1),
)
FROZEN = ((Victim.HANDLER, 2), (Victim.WORKER, 3), (Victim.BOOTSTRAP, 2), (Victim.PSLITE, 2), (Victim.COORDINATOR, 2))
WISHES = ((Wish.LAUNCH, 3), (Wish.UNTAG, 3), (Wish.RETAG, 1), (Wish.CAPACITY, 3))


def faults(seed: int, duration: float, links: bool = False, volume: bool = False) -> tuple[Fault, ...]:
    """The faults in order of time, from 0 to `duration` seconds. `links`: some cut or slow links; `volume`: it hangs
    now and then; the other faults are the same as without.
    """
    chance = random.Random(f"faults {seed}")

    longest = min(LONGEST_FREEZE, duration / 5)

    def fault(at: float) -> Fault:
        kind = chance.random()
        if kind < 0.6:
            return Kill(at, _chosen(chance, KILLED), chance.random())
        if kind < 0.9:
            return Freeze(at, _chosen(chance, FROZEN), chance.random(), _skewed(chance, longest))
        return Throttle(at, chance.choice(SERVICES), chance.uniform(0.3, 0.9), _skewed(chance, 8.0))

    planned: list[Fault] = [fault(at) for at in _times(chance, duration, MEAN_SECONDS_BETWEEN_FAULTS)]
    if links:
        planned += [
            Cut(at, chance.random(), _skewed(chance, longest))
            for at in _times(chance, duration, MEAN_SECONDS_BETWEEN_CUTS)
        ]
        chance = random.Random(f"slow links {seed}")
        planned += [
            Slow(at, chance.random(), chance.choice((5.0, 20.0, 100.0)), _skewed(chance, longest))
            for at in _times(chance, duration, MEAN_SECONDS_BETWEEN_SLOW_LINKS)
        ]
    if volume:
        chance, most = random.Random(f"volume {seed}"), min(LONGEST_STALL, duration / 5)
        planned += [Stall(at, _skewed(chance, most)) for at in _times(chance, duration, MEAN_SECONDS_BETWEEN_STALLS)]
    return tuple(sorted(planned, key=lambda one: one.at))


def changes(seed: int, duration: float, largest: int) -> tuple[Change, ...]:
    """The changes in order of time; capacities are from 0 to `largest`."""
    chance = random.Random(f"changes {seed}")

    def change(at: float) -> Change:
        return Change(at, _chosen(chance, WISHES), chance.random(), chance.randint(0, largest))

    return tuple(change(at) for at in _times(chance, duration, MEAN_SECONDS_BETWEEN_CHANGES))


P = TypeVar("P", bound=Fault | Change)


def stretched(planned: Sequence[P], factor: float, duration: float) -> tuple[P, ...]:
    """The plan for a host on which everything takes `factor` times as long: at the plan's own pace no worker would
    reach its first step between two faults, and the job would be right to give up. Faults after the end are dropped.
    """
    return tuple(replace(one, at=one.at * factor) for one in planned if one.at * factor < duration)


def _times(chance: random.Random, duration: float, mean: float) -> list[float]:
    times = []
    at = chance.uniform(0.3, 1.7) * mean
    while at < duration:
        times.append(at)
        at += chance.uniform(0.3, 1.7) * mean
    return times


def _skewed(chance: random.Random, most: float) -> float:
    """Random seconds: mostly short, sometimes close to `most`."""
    return 0.5 + (most - 0.5) * chance.random() ** 2


T = TypeVar("T")


def _chosen(chance: random.Random, weighted: Sequence[tuple[T, int]]) -> T:
    return chance.choices([one for one, _ in weighted], [weight for _, weight in weighted])[0]
