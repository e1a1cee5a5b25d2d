"""Access to AWS for the commands of `dyntrain job`, and the state of a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.adapters.jobs import job_ports
from dyntrain.controller.adapters.submission import AwsLauncher
from dyntrain.controller.cli.shell.connection import stage_of_command
from dyntrain.controller.contract.errors import Conflict, GiveUp, RetryLater
from dyntrain.controller.contract.job_files import STOPPED, Exit, verdict_key
from dyntrain.controller.jobs.ports import JobPorts, StoredJob
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.submission.ports import Launcher
from dyntrain.controller.jobs.submission.submit import Say, resubmit
from dyntrain.controller.jobs.verdict import Machine, Phase, phase
from dyntrain.controller.jobs.watch import decision_of

FOLLOW_SECONDS = 2.0
AWAY_SECONDS = 10.0
RELAUNCH_SECONDS = 3600.0
START_SECONDS = 1800.0  # after which silent machines are reported
Pause = Callable[[float], None]


def connect_jobs() -> tuple[JobPorts, AwsLauncher]:
    clients = Clients(attempts=2)
    return job_ports(clients, stage_of_command().table, time.time), AwsLauncher(clients)


@dataclass(frozen=True)
class Seen:
    """A job's state. `verdict` is the run's exit.json, `codes` the exit codes of the ranks that have ended."""

    record: JobRecord
    phase: Phase
    machines: Sequence[Machine]
    verdict: Exit | None
    codes: dict[int, int | None]
    heard: int
    late: bool = False  # no sign of life from any node long after the launch

    @property
    def reason(self) -> str:
        if self.late:
            return (
                f"no node was heard of in {START_SECONDS / 60:.0f} minutes; the image may not run user data, or its "
                f"machines not reach S3. `dyntrain job stop {self.record.name} --now` ends them"
            )
        return self.record.reason


def stored_job(ports: JobPorts, name: str) -> StoredJob:
    stored = ports.records.get(name)
    if stored is None:
        raise GiveUp(f"there is no job {name!r}; `dyntrain job list` shows those there are")
    return stored


def look(ports: JobPorts, launcher: Launcher, name: str) -> Seen:
    """Judge the job as the controller will at its next look, up to a minute later. Writes nothing."""
    stored = stored_job(ports, name)
    machines = sorted(ports.machines.of_runs([stored.record.token]), key=lambda machine: machine.rank)
    record = decision_of(ports, stored, machines).record
    heard = 0 if record.ended else launcher.alive_count(record)
    codes = dict(ports.results.codes(record, range(record.nodes)))
    verdict = ports.results.verdict(record)
    stands = phase(record, machines, heard)
    late = stands == "STARTING" and not heard and ports.clock() - record.since > START_SECONDS
    return Seen(record, stands, machines, verdict, codes, heard, late)


def follow(
    ports: JobPorts, launcher: Launcher, name: str, say: Callable[[Seen], None], until: Sequence[Phase], pause: Pause
) -> Seen:
    """Report each phase until one of `until`. Continues when AWS is unreachable for a while: a job may take days."""
    shown = ""
    while True:
        try:
            job = look(ports, launcher, name)
        except RetryLater:
            pause(AWAY_SECONDS)
            continue
        state = f"{job.phase} {job.heard} {job.late}"
        if state != shown:
            shown = state
            say(job)
        if job.phase in until:
            return job
        pause(FOLLOW_SECONDS)


def settle(ports: JobPorts, launcher: Launcher, name: str) -> None:
    """Store how a job has ended, if it has, without waiting for the controller's next look."""
    stored = stored_job(ports, name)
    record = look(ports, launcher, name).record
    if record.ended and record != stored.record:
        with suppress(Conflict):  # the controller has written the same first
            ports.records.put(StoredJob(record, stored.version), over=False)


def relaunch(ports: JobPorts, launcher: Launcher, name: str, say: Say) -> None:
    """Launch the next attempt of an interrupted job, unless somebody has stopped it meanwhile. Waits for machines that
    are still saving, for an unreachable AWS, and for capacity. Raises GiveUp when that takes too long.
    """
    until = ports.clock() + RELAUNCH_SECONDS
    shown = ""
    while True:
        try:
            settle(ports, launcher, name)
            if stored_job(ports, name).record.state in ("INTERRUPTED", "LAUNCHING"):
                resubmit(ports, launcher, name, say)
            return
        except RetryLater as error:
            if ports.clock() >= until:
                raise GiveUp(
                    f"{name} could not be launched again within {RELAUNCH_SECONDS / 60:.0f} minutes: {error}; "
                    f"`dyntrain job resubmit {name}` tries it by hand"
                ) from error
            if str(error) != shown:
                shown = str(error)
                say(f"waiting: {shown}")
        launcher.pause(AWAY_SECONDS)


def stop(ports: JobPorts, launcher: Launcher, name: str, *, at_once: bool) -> str:
    """Stop the job and return what was done. A job that has ended keeps its result; an interrupted one is not launched
    again.
    """
    settle(ports, launcher, name)
    stored = stored_job(ports, name)
    record, now = stored.record, ports.clock()
    living = [machine.instance for machine in ports.machines.of_runs([record.token]) if machine.living]
    ended = record.ended
    if record.state == "INTERRUPTED":
        stopped = record.with_state("STOPPED", f"stopped by hand after: {record.reason}", now)
        ports.records.put(StoredJob(stopped, stored.version), over=False)
    if not ended:
        order = Exit(STOPPED, 0, None, "stopped by hand", now)
        launcher.put(record.bucket, verdict_key(name, record.run), order.text().encode())
        ports.records.put(StoredJob(record.with_state("STOPPED", order.reason, now), stored.version), over=False)
    if living and (at_once or record.state == "LAUNCHING"):
        ports.machines.terminate(living)
        return f"{name}: {len(living)} machines are terminated"
    if ended:
        return f"{name} has ended already ({record.state})"
    return f"{name}: its {len(living)} machines save their artifacts and end"
