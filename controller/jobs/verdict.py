"""Decides a job's state, and which machines of the job to end. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from dyntrain.controller.contract.job_files import Exit
from dyntrain.controller.jobs.record import LAUNCH_SECONDS, JobRecord, State

GRACE_SECONDS = 600.0  # for a finished job's machines to save their artifacts and switch themselves off
DRAIN_SECONDS = 3600.0  # EC2 may show a launch late: an ended job is checked for this long
# Nodes enforce the time limit themselves, from their own start, and report more about it
OVERTIME_SECONDS = 1800.0
SPOT_ENDED = ("Server.SpotInstanceTermination", "Server.SpotInstanceShutdown")
_LIVING = ("pending", "running", "stopping", "stopped")


@dataclass(frozen=True)
class Machine:
    """An instance that carries the run's client token. `why` is EC2's code for its last change of state."""

    instance: str
    rank: int
    state: str
    token: str
    address: str | None = None
    why: str = ""
    launched: float | None = None

    @property
    def living(self) -> bool:
        return self.state in _LIVING


@dataclass(frozen=True)
class Decision:
    """A new record, or the same one if nothing changed. `over`: the job cannot change any more."""

    record: JobRecord
    terminate: tuple[str, ...] = ()
    over: bool = False


def decide(
    record: JobRecord, machines: Sequence[Machine], verdict: Exit | None, codes: Mapping[int, int | None], now: float
) -> Decision:
    """Decide. `verdict` is the run's exit, `codes` are the exit codes of its ended ranks, as far as known."""
    machines = [machine for machine in machines if machine.token == record.token]
    living = tuple(machine.instance for machine in machines if machine.living)
    if record.ended:
        overdue = living if now - record.changed >= GRACE_SECONDS else ()
        return Decision(record, overdue, over=not living and now - record.changed > DRAIN_SECONDS)
    if verdict is not None:
        return Decision(record.with_state(_state(verdict), verdict.reason, now))
    if record.state == "LAUNCHING":
        if now - record.since <= LAUNCH_SECONDS:
            return Decision(record)
        reason = f"its submit did not finish within {LAUNCH_SECONDS / 60:.0f} minutes"
        return Decision(record.with_state("FAILED", reason, now), living)
    if now - record.since > record.max_hours * 3600.0 + OVERTIME_SECONDS:
        return Decision(
            record.with_state("FAILED", f"it has taken more than its {record.max_hours:g} hours", now), living
        )
    living_ranks = {machine.rank for machine in machines if machine.living}
    silent = [rank for rank in range(record.nodes) if rank not in living_ranks and codes.get(rank) != 0]
    if not living_ranks and not silent:
        return Decision(record.with_state("SUCCEEDED", f"all {record.nodes} ranks ended with exit code 0", now))
    if not silent:
        return Decision(_without_loss(record))
    if record.lost_since is None:
        return Decision(record.model_copy(update={"lost_since": now}))
    if now - record.lost_since < GRACE_SECONDS:
        return Decision(record)
    ended_machines = {machine.rank: machine for machine in machines if not machine.living}
    if interrupted := [rank for rank in silent if rank in ended_machines and ended_machines[rank].why in SPOT_ENDED]:
        return Decision(
            record.with_state("INTERRUPTED", f"EC2 took back the Spot instance of rank {interrupted[0]}", now), living
        )
    reason = f"the machine of rank {silent[0]} ended without an exit code; its console output may say why"
    return Decision(record.with_state("FAILED", reason, now), living)


def _without_loss(record: JobRecord) -> JobRecord:
    return record if record.lost_since is None else record.model_copy(update={"lost_since": None})


def _state(verdict: Exit) -> State:
    known: dict[str, State] = {state: state for state in get_args(State)}
    return known[verdict.verdict]


Phase = Literal["LAUNCHING", "STARTING", "RUNNING", "ENDING", "SUCCEEDED", "FAILED", "INTERRUPTED", "STOPPED"]


def phase(record: JobRecord, machines: Sequence[Machine], alive: int) -> Phase:
    """The phase to show for a record that `decide` returned; `alive` is the number of nodes that gave a sign of
    life.
    """
    if record.ended:
        return "ENDING" if any(machine.living for machine in machines) and record.state == "SUCCEEDED" else record.state
    if record.state == "LAUNCHING":
        return "LAUNCHING"
    return "RUNNING" if alive >= record.nodes else "STARTING"
