"""Decides a job's new state, and which of the job's machines to terminate. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from dyntrain.controller.contract.job_files import Exit
from dyntrain.controller.jobs.record import LAUNCH_SECONDS, JobRecord, State

GRACE_SECONDS = 600.0  # for a finished job's machines to save their artifacts and switch themselves off
DRAIN_SECONDS = 3600.0  # EC2 may show a launch late: an ended job is checked for this long
# Nodes enforce the time limit themselves, from their own start, and report more about it
OVERTIME_SECONDS = 1800.0  # after `max_hours`, until the controller ends the machines
SPOT_END_CODES = ("Server.SpotInstanceTermination", "Server.SpotInstanceShutdown")  # EC2's codes in `Machine.why`
_LIVING_STATES = ("pending", "running", "stopping", "stopped")


@dataclass(frozen=True)
class Machine:  # of a job
    """An EC2 instance that was launched for a job's run."""

    instance: str  # EC2 instance id
    rank: int  # of the machine in its run
    state: str  # EC2's instance state
    token: str  # the client token of the run
    address: str | None = None  # private IP address
    why: str = ""  # EC2's code for the last change of state
    launched: float | None = None  # launch time

    @property
    def living(self) -> bool:  # whether EC2 has not terminated the machine
        return self.state in _LIVING_STATES


@dataclass(frozen=True)
class Decision:  # about a job
    """The decision about a job: the job's new record, and the machines to terminate."""

    record: JobRecord  # the new record, or the old record if nothing changed
    terminate: tuple[str, ...] = ()  # ids of the instances to terminate
    over: bool = False  # the job cannot change any more


def decide(  # a job's new state
    record: JobRecord, machines: Sequence[Machine], verdict: Exit | None, codes: Mapping[int, int | None], now: float
) -> Decision:
    """Decide the job's new state, and which of the job's machines to terminate. `verdict` is the stored result of the
    job's whole run, or None. `codes` contains the known exit codes of ended ranks, by rank.
    """
    machines = [machine for machine in machines if machine.token == record.token]
    living_instances = tuple(machine.instance for machine in machines if machine.living)
    if record.ended:
        overdue_instances = living_instances if now - record.changed >= GRACE_SECONDS else ()
        return Decision(record, overdue_instances, over=not living_instances and now - record.changed > DRAIN_SECONDS)
    if verdict is not None:
        return Decision(record.with_state(_state_of_exit(verdict), verdict.reason, now))
    if record.state == "LAUNCHING":
        if now - record.since <= LAUNCH_SECONDS:
            return Decision(record)
        failure_reason = f"its submit did not finish within {LAUNCH_SECONDS / 60:.0f} minutes"
        return Decision(record.with_state("FAILED", failure_reason, now), living_instances)
    if now - record.since > record.max_hours * 3600.0 + OVERTIME_SECONDS:
        return Decision(
            record.with_state("FAILED", f"it has taken more than its {record.max_hours:g} hours", now), living_instances
        )
    living_ranks = {machine.rank for machine in machines if machine.living}
    silent_ranks = [rank for rank in range(record.nodes) if rank not in living_ranks and codes.get(rank) != 0]
    if not living_ranks and not silent_ranks:
        return Decision(record.with_state("SUCCEEDED", f"all {record.nodes} ranks ended with exit code 0", now))
    if not silent_ranks:
        return Decision(_without_lost_since(record))
    if record.lost_since is None:
        return Decision(record.model_copy(update={"lost_since": now}))
    if now - record.lost_since < GRACE_SECONDS:
        return Decision(record)
    ended_machines = {machine.rank: machine for machine in machines if not machine.living}
    if interrupted_ranks := [
        rank for rank in silent_ranks if rank in ended_machines and ended_machines[rank].why in SPOT_END_CODES
    ]:
        return Decision(
            record.with_state("INTERRUPTED", f"EC2 took back the Spot instance of rank {interrupted_ranks[0]}", now),
            living_instances,
        )
    failure_reason = f"the machine of rank {silent_ranks[0]} ended without an exit code; its console output may say why"
    return Decision(record.with_state("FAILED", failure_reason, now), living_instances)


def _without_lost_since(record: JobRecord) -> JobRecord:
    return record if record.lost_since is None else record.model_copy(update={"lost_since": None})


def _state_of_exit(verdict: Exit) -> State:
    states_by_name: dict[str, State] = {state: state for state in get_args(State)}
    return states_by_name[verdict.verdict]


Phase = Literal["LAUNCHING", "STARTING", "RUNNING", "ENDING", "SUCCEEDED", "FAILED", "INTERRUPTED", "STOPPED"]


def phase(record: JobRecord, machines: Sequence[Machine], alive: int) -> Phase:
    """The job's phase to show to users, for a record that `decide` returned. `alive` is the number of nodes that have
    given a sign of life.
    """
    if record.ended:
        return "ENDING" if any(machine.living for machine in machines) and record.state == "SUCCEEDED" else record.state
    if record.state == "LAUNCHING":
        return "LAUNCHING"
    return "RUNNING" if alive >= record.nodes else "STARTING"
