"""The plan of a fault-injection hunt: the faults and the simulated users' changes, each with its time. All functions of
this module are pure: the same arguments give the same plan.
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
LONGEST_STALL_SECONDS = 120.0  # longest time for which the volume hangs
LONGEST_FREEZE_SECONDS = 40.0  # longer than all deadlines after which a silent process counts as dead
SERVICES = ("ec2", "autoscaling", "ssm", "dynamodb", "events")  # AWS services whose calls are throttled


class Victim(StrEnum):
    """A kind of process that injected faults hit."""

    HANDLER = "handler"  # a process that runs the controller's Lambda handlers
    BOOTSTRAP = "bootstrap"  # the process that prepares a node
    COORDINATOR = "coordinator"  # the process that coordinates the job's workers
    WORKER = "worker"  # a training process
    PSLITE = "ps-lite"  # a server or scheduler process of MXNet's parameter server
    MACHINE = "machine"  # the init process of a machine, so that the whole node ends and boots again


@dataclass(frozen=True)
class ProcessKill:
    """A fault that sends SIGKILL to a process of the kind `victim`."""

    at: float  # seconds after the start of the hunt
    victim: Victim  # the kind of process
    pick: float  # from 0 to 1; chooses one of the processes or hosts


@dataclass(frozen=True)
class ProcessFreeze:
    """A fault that sends SIGSTOP to a process of the kind `victim`, and SIGCONT `seconds` later."""

    at: float  # seconds after the start of the hunt
    victim: Victim  # the kind of process
    pick: float  # from 0 to 1; chooses one of the processes or hosts
    seconds: float  # duration of the fault


@dataclass(frozen=True)
class ServiceThrottle:
    """A fault that makes the emulated AWS refuse the given `fraction` of the calls to `service` for `seconds`."""

    at: float  # seconds after the start of the hunt
    service: str  # of AWS, such as ec2
    fraction: float  # of the calls to the service, which are refused
    seconds: float  # duration of the fault


@dataclass(frozen=True)
class LinkCut:
    """A fault that cuts the network link of a host for `seconds`."""

    at: float  # seconds after the start of the hunt
    pick: float  # from 0 to 1; chooses one of the processes or hosts
    seconds: float  # duration of the fault


@dataclass(frozen=True)
class LinkSlowdown:
    """A fault that limits the network link of a host to `megabits` a second (Mbit/s) for `seconds`."""

    at: float  # seconds after the start of the hunt
    pick: float  # from 0 to 1; chooses one of the processes or hosts
    megabits: float  # limit of the link, in megabits a second
    seconds: float  # duration of the fault


@dataclass(frozen=True)
class VolumeStall:
    """A fault that makes the shared volume hang: for `seconds`, every write to the volume waits."""

    at: float  # seconds after the start of the hunt
    seconds: float  # duration of the fault


Fault = ProcessKill | ProcessFreeze | ServiceThrottle | LinkCut | LinkSlowdown | VolumeStall


class ChangeKind(StrEnum):
    LAUNCH = "launch"  # launch an instance from the launch template
    UNTAG = "untag"  # delete the elastic tag of an instance
    RETAG = "retag"  # set the deleted elastic tag of a running instance again
    CAPACITY = "capacity"  # set the group's desired capacity


@dataclass(frozen=True)
class ClusterChange:
    """A change of the cluster that a simulated user makes."""

    at: float  # seconds after the start of the hunt
    kind: ChangeKind  # the kind of change
    pick: float  # from 0 to 1; chooses the instance
    size: int  # the group's new desired capacity


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
CHANGE_WEIGHTS = ((ChangeKind.LAUNCH, 3), (ChangeKind.UNTAG, 3), (ChangeKind.RETAG, 1), (ChangeKind.CAPACITY, 3))


def plan_faults(seed: int, duration: float, links: bool = False, volume: bool = False) -> tuple[Fault, ...]:
    """The planned faults, sorted by time, of a fault-injection test that lasts `duration` seconds. With `links`,
    additional faults cut or slow network links. With `volume`, additional faults make the shared volume hang.
    """
    randomness = random.Random(f"faults {seed}")

    longest_fault_seconds = min(LONGEST_FREEZE_SECONDS, duration / 5)

    def make_fault(at: float) -> Fault:
        fault_kind_draw = randomness.random()
        if fault_kind_draw < 0.6:
            return ProcessKill(at, _random_choice(randomness, KILL_WEIGHTS), randomness.random())
        if fault_kind_draw < 0.9:
            return ProcessFreeze(
                at,
                _random_choice(randomness, FREEZE_WEIGHTS),
                randomness.random(),
                _random_duration(randomness, longest_fault_seconds),
            )
        return ServiceThrottle(
            at, randomness.choice(SERVICES), randomness.uniform(0.3, 0.9), _random_duration(randomness, 8.0)
        )

    planned_faults: list[Fault] = [
        make_fault(at) for at in _random_times(randomness, duration, MEAN_SECONDS_BETWEEN_FAULTS)
    ]
    if links:
        planned_faults += [
            LinkCut(at, randomness.random(), _random_duration(randomness, longest_fault_seconds))
            for at in _random_times(randomness, duration, MEAN_SECONDS_BETWEEN_CUTS)
        ]
        randomness = random.Random(f"slow links {seed}")
        planned_faults += [
            LinkSlowdown(
                at,
                randomness.random(),
                randomness.choice((5.0, 20.0, 100.0)),
                _random_duration(randomness, longest_fault_seconds),
            )
            for at in _random_times(randomness, duration, MEAN_SECONDS_BETWEEN_SLOW_LINKS)
        ]
    if volume:
        randomness, longest_stall_seconds = random.Random(f"volume {seed}"), min(LONGEST_STALL_SECONDS, duration / 5)
        planned_faults += [
            VolumeStall(at, _random_duration(randomness, longest_stall_seconds))
            for at in _random_times(randomness, duration, MEAN_SECONDS_BETWEEN_STALLS)
        ]
    return tuple(sorted(planned_faults, key=lambda planned_fault: planned_fault.at))


def plan_changes(seed: int, duration: float, largest_capacity: int) -> tuple[ClusterChange, ...]:
    """The planned changes of the simulated users, sorted by time. A change of the group's capacity requests from 0 to
    `largest_capacity` instances.
    """
    randomness = random.Random(f"changes {seed}")

    def make_change(at: float) -> ClusterChange:
        return ClusterChange(
            at, _random_choice(randomness, CHANGE_WEIGHTS), randomness.random(), randomness.randint(0, largest_capacity)
        )

    return tuple(make_change(at) for at in _random_times(randomness, duration, MEAN_SECONDS_BETWEEN_CHANGES))


Planned = TypeVar("Planned", bound=Fault | ClusterChange)


def stretch_plan(planned: Sequence[Planned], factor: float, duration: float) -> tuple[Planned, ...]:
    """Multiply the times of planned faults or changes by `factor`, because a slow host needs more time between faults.
    Faults and changes whose multiplied time is `duration` or later are dropped. With the original times of the faults,
    no worker on a slow host would reach its first step between two faults, and the job would rightly give up.
    """
    return tuple(replace(entry, at=entry.at * factor) for entry in planned if entry.at * factor < duration)


def _random_times(randomness: random.Random, duration: float, mean_seconds: float) -> list[float]:
    random_times = []
    random_time = randomness.uniform(0.3, 1.7) * mean_seconds
    while random_time < duration:
        random_times.append(random_time)
        random_time += randomness.uniform(0.3, 1.7) * mean_seconds
    return random_times


def _random_duration(randomness: random.Random, longest_seconds: float) -> float:
    """A random duration in seconds: mostly short, sometimes close to `longest_seconds`."""
    return 0.5 + (longest_seconds - 0.5) * randomness.random() ** 2


Value = TypeVar("Value")


def _random_choice(randomness: random.Random, weighted_values: Sequence[tuple[Value, int]]) -> Value:
    return randomness.choices([value for value, _ in weighted_values], [weight for _, weight in weighted_values])[0]
