"""Connect the commands of `dyntrain job` to AWS, and read, follow, relaunch and stop a job."""

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

FOLLOW_SECONDS = 2.0  # between two reads of a job's state
RETRY_SECONDS = 10.0  # before a failed call of AWS is repeated
RELAUNCH_SECONDS = 3600.0  # after this time a relaunch is given up
START_SECONDS = 1800.0  # without a live node after this time, a job is reported as late
Pause = Callable[[float], None]  # a function that sleeps for a number of seconds


def connect_jobs() -> tuple[JobPorts, AwsLauncher]:
    clients = Clients(attempts=2)
    return job_ports(clients, stage_of_command().table, time.time), AwsLauncher(clients)


@dataclass(frozen=True)
class JobState:  # of the current attempt
    """The state of a job's current attempt."""

    record: JobRecord
    phase: Phase  # of the job
    machines: Sequence[Machine]  # of the attempt, by rank
    verdict: Exit | None  # the attempt's exit.json
    codes: dict[int, int | None]  # exit codes of the ended ranks
    heard: int  # number of nodes that show signs of life
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
    stored_record = ports.records.get(name)
    if stored_record is None:
        raise GiveUp(f"there is no job {name!r}; `dyntrain job list` lists all jobs")
    return stored_record


def read_state(ports: JobPorts, launcher: Launcher, name: str) -> JobState:
    """Read the job's state without writing anything. The state includes an end of the job that the controller has not
    stored yet.
    """
    job = stored_job(ports, name)
    machines = sorted(ports.machines.of_runs([job.record.token]), key=lambda machine: machine.rank)
    record = decision_of(ports, job, machines).record
    alive_node_count = 0 if record.ended else launcher.alive_count(record)
    exit_codes = dict(ports.results.exit_codes(record, range(record.nodes)))
    verdict = ports.results.verdict(record)
    job_phase = phase(record, machines, alive_node_count)
    is_late = job_phase == "STARTING" and not alive_node_count and ports.clock() - record.since > START_SECONDS
    return JobState(record, job_phase, machines, verdict, exit_codes, alive_node_count, is_late)


def poll_job(
    ports: JobPorts,
    launcher: Launcher,
    name: str,
    say: Callable[[JobState], None],
    end_phases: Sequence[Phase],
    pause: Pause,
) -> JobState:
    """Call `say` with each new state of the job until its phase is in `end_phases`. While AWS is unreachable, the
    function waits.
    """
    last_state_text = ""
    while True:
        try:
            job_state = read_state(ports, launcher, name)
        except RetryLater:
            pause(RETRY_SECONDS)
            continue
        state_text = f"{job_state.phase} {job_state.heard} {job_state.late}"
        if state_text != last_state_text:
            last_state_text = state_text
            say(job_state)
        if job_state.phase in end_phases:
            return job_state
        pause(FOLLOW_SECONDS)


def store_end(ports: JobPorts, launcher: Launcher, name: str) -> None:
    """If the job has ended, store the end at once instead of waiting for the controller's next check."""
    job = stored_job(ports, name)
    record = read_state(ports, launcher, name).record
    if record.ended and record != job.record:
        with suppress(Conflict):  # the controller has written the same record first
            ports.records.put(StoredJob(record, job.version), over=False)


def relaunch(ports: JobPorts, launcher: Launcher, name: str, say: Say) -> None:
    """Launch the next attempt of an interrupted job, unless the job has been stopped. The function waits while
    machines of the last attempt save files, and while AWS is unreachable or lacks capacity. Raises GiveUp if no launch
    has succeeded after RELAUNCH_SECONDS.
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
    """Stop the job and return a message about its machines. A job that has ended keeps its result, and an interrupted
    job is not launched again.
    """
    store_end(ports, launcher, name)
    job = stored_job(ports, name)
    record, now = job.record, ports.clock()
    living_instances = [machine.instance for machine in ports.machines.of_runs([record.token]) if machine.living]
    has_ended = record.ended
    if record.state == "INTERRUPTED":
        stopped_record = record.with_state("STOPPED", f"stopped by hand after: {record.reason}", now)
        ports.records.put(StoredJob(stopped_record, job.version), over=False)
    if not has_ended:
        stop_verdict = Exit(STOPPED, 0, None, "stopped by hand", now)
        launcher.put(record.bucket, verdict_key(name, record.run), stop_verdict.text().encode())
        ports.records.put(StoredJob(record.with_state("STOPPED", stop_verdict.reason, now), job.version), over=False)
    if living_instances and (at_once or record.state == "LAUNCHING"):
        ports.machines.terminate(living_instances)
        return f"{name}: {len(living_instances)} machines are terminated"
    if has_ended:
        return f"{name} has ended already ({record.state})"
    return f"{name}: its {len(living_instances)} machines save their artifacts and end"
