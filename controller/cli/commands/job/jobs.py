"""Access to AWS for the commands of `dyntrain job`; read, follow, relaunch and stop a job."""

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
RETRY_SECONDS = 10.0
RELAUNCH_SECONDS = 3600.0
START_SECONDS = 1800.0  # without a live node after this time, a job is reported as late
Pause = Callable[[float], None]


def connect_jobs() -> tuple[JobPorts, AwsLauncher]:
    clients = Clients(attempts=2)
    return job_ports(clients, stage_of_command().table, time.time), AwsLauncher(clients)


@dataclass(frozen=True)
class JobState:
    """A job's state. `verdict`: the run's exit.json; `codes`: ended ranks' exit codes; `heard`: count of live nodes."""

    record: JobRecord
    phase: Phase
    machines: Sequence[Machine]
    verdict: Exit | None
    codes: dict[int, int | None]
    heard: int
    late: bool = False  # no node has reported START_SECONDS after the launch

    @property
    def reason(self) -> str:
        if self.late:
            return (
                f"no node has reported in {START_SECONDS / 60:.0f} minutes; the image may not run user data, or the "
                f"machines may not reach S3. `dyntrain job stop {self.record.name} --now` ends the machines"
            )
        return self.record.reason


def stored_job(ports: JobPorts, name: str) -> StoredJob:
    stored = ports.records.get(name)
    if stored is None:
        raise GiveUp(f"there is no job {name!r}; `dyntrain job list` lists all jobs")
    return stored


def read_state(ports: JobPorts, launcher: Launcher, name: str) -> JobState:
    """Read the job's state, judged as by the controller's next check of all jobs. Writes nothing."""
    stored = stored_job(ports, name)
    machines = sorted(ports.machines.of_runs([stored.record.token]), key=lambda machine: machine.rank)
    record = decision_of(ports, stored, machines).record
    heard = 0 if record.ended else launcher.alive_count(record)
    codes = dict(ports.results.exit_codes(record, range(record.nodes)))
    verdict = ports.results.verdict(record)
    job_phase = phase(record, machines, heard)
    late = job_phase == "STARTING" and not heard and ports.clock() - record.since > START_SECONDS
    return JobState(record, job_phase, machines, verdict, codes, heard, late)


def follow(
    ports: JobPorts,
    launcher: Launcher,
    name: str,
    say: Callable[[JobState], None],
    end_phases: Sequence[Phase],
    pause: Pause,
) -> JobState:
    """Call `say` with each new state until the job has one of `end_phases`. Waits while AWS is unreachable."""
    last_state = ""
    while True:
        try:
            job = read_state(ports, launcher, name)
        except RetryLater:
            pause(RETRY_SECONDS)
            continue
        state = f"{job.phase} {job.heard} {job.late}"
        if state != last_state:
            last_state = state
            say(job)
        if job.phase in end_phases:
            return job
        pause(FOLLOW_SECONDS)


def store_end(ports: JobPorts, launcher: Launcher, name: str) -> None:
    """Store the end of a job that has ended, without waiting for the controller's next check."""
    stored = stored_job(ports, name)
    record = read_state(ports, launcher, name).record
    if record.ended and record != stored.record:
        with suppress(Conflict):  # the controller has written the same record first
            ports.records.put(StoredJob(record, stored.version), over=False)


def relaunch(ports: JobPorts, launcher: Launcher, name: str, say: Say) -> None:
    """Launch the next attempt of an interrupted job, unless the job was stopped meanwhile. Waits for machines that
    save files, for AWS, and for capacity. Raises GiveUp after RELAUNCH_SECONDS.
    """
    deadline = ports.clock() + RELAUNCH_SECONDS
    last_message = ""
    while True:
        try:
            store_end(ports, launcher, name)
            if stored_job(ports, name).record.state in ("INTERRUPTED", "LAUNCHING"):
                resubmit(ports, launcher, name, say)
            return
        except RetryLater as error:
            if ports.clock() >= deadline:
                raise GiveUp(
                    f"{name} could not be launched again within {RELAUNCH_SECONDS / 60:.0f} minutes: {error}; "
                    f"`dyntrain job resubmit {name}` tries again"
                ) from error
            if str(error) != last_message:
                last_message = str(error)
                say(f"waiting: {last_message}")
        launcher.pause(RETRY_SECONDS)


def stop(ports: JobPorts, launcher: Launcher, name: str, *, at_once: bool) -> str:
    """Stop the job and return a message about it. A job that has ended keeps its result; an interrupted job is not
    launched again.
    """
    store_end(ports, launcher, name)
    stored = stored_job(ports, name)
    record, now = stored.record, ports.clock()
    living_instances = [machine.instance for machine in ports.machines.of_runs([record.token]) if machine.living]
    ended = record.ended
    if record.state == "INTERRUPTED":
        stopped = record.with_state("STOPPED", f"stopped by hand after: {record.reason}", now)
        ports.records.put(StoredJob(stopped, stored.version), over=False)
    if not ended:
        exit_order = Exit(STOPPED, 0, None, "stopped by hand", now)
        launcher.put(record.bucket, verdict_key(name, record.run), exit_order.text().encode())
        ports.records.put(StoredJob(record.with_state("STOPPED", exit_order.reason, now), stored.version), over=False)
    if living_instances and (at_once or record.state == "LAUNCHING"):
        ports.machines.terminate(living_instances)
        return f"{name}: {len(living_instances)} machines are terminated"
    if ended:
        return f"{name} has ended already ({record.state})"
    return f"{name}: its {len(living_instances)} machines save their artifacts and end"
