"""Run a fault-injection hunt: inject faults into all processes of the system, except moto (the emulator of AWS's APIs),
while simulated users change the cluster. When the faults have ended, the cluster must reach the state that the
simulated users last requested.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from dyntrain.controller.contract.messages import BASE_TAG, OWNER_TAG, STATUS_TAG
from dyntrain.controller.local.chaos import census
from dyntrain.controller.local.chaos.last_words import last_log_lines
from dyntrain.controller.local.chaos.people import SimulatedUsers
from dyntrain.controller.local.chaos.plan import plan_changes, plan_faults, stretch_plan
from dyntrain.controller.local.chaos.standstill import Standstill, standstill_report
from dyntrain.controller.local.chaos.storm import FaultInjector
from dyntrain.controller.local.chaos.verdict import (
    ClusterState,
    Verdict,
    build_hunt_report,
    judge_state,
    last_cool_down_end,
    report_problems,
)
from dyntrain.controller.local.chaos.volume import HangingVolume, VolumeUnavailable
from dyntrain.controller.local.cloud.embedded import Cloud
from dyntrain.controller.local.errors import LocalCloudError
from dyntrain.controller.local.options import Options
from dyntrain.controller.local.pace import Deadline, slowness
from dyntrain.controller.local.stack import Cluster, create_stack, digits_command, write_prepare_script
from dyntrain.training.audit import audit_directory
from dyntrain.training.events import Event, Segment
from dyntrain.training.layout import JobFolder, current_job_file, read_current_job
from dyntrain.training.ledger import read_events

CLUSTER_NAME = "chaos"
EPOCHS = 1_000_000  # more than any hunt lasts
LARGEST_GROUP = 2  # the largest capacity that simulated users request for the group
START_SECONDS = 240.0  # limit for the first training step on a busy host
QUIET_SECONDS = 240.0  # limit for reaching the requested state after the last fault and the last cool-down
SECONDS_BETWEEN_VERDICTS = 1.5  # between two comparisons of the state with the requests
CLEAN_VERDICTS = 3  # so many clean verdicts in a row are needed
RESYNC_SECONDS = 5.0  # period of the controller's resync
# Without `hold_endings`, many machines may end before their first report: the simulated users answer no alarm.
CLUSTER_POLICY = {"resync_seconds": RESYNC_SECONDS, "hold_endings": False}
LEAST_PLAN_SECONDS = 60.0  # planned seconds of faults that remain on a slow host
LEDGER_POLL_SECONDS = 0.2  # between two looks at the sizes of the ledgers
PRINTED_STANDSTILL_SECONDS = 30.0  # longer standstills are printed when the job trains again


class JobNeverStarted(LocalCloudError):
    """Raised when the job made no training step within the time limit, before the first fault."""


class StepMonitor:
    """Find the periods in which the job makes no training step. Each worker writes a line to its ledger file before
    every step, so the ledger files grow while the job trains.
    """

    def __init__(self, mount: Path, print_line: Callable[[str], None]) -> None:
        self._mount, self._print_line = mount, print_line
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch_ledgers, name="pulse", daemon=True)
        self.first_step = threading.Event()
        self._standstills: list[Standstill] = []
        self._last_growth = 0.0  # the last step, in seconds since the Unix epoch; 0.0 before the first step

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> list[Standstill]:
        """Stop monitoring, and return all periods without a training step, including the period until now."""
        self._stop.set()
        self._thread.join(10.0)
        return [*self._standstills, Standstill(self._last_growth, time.time())] if self._last_growth else []

    def _watch_ledgers(self) -> None:
        former_ledger_bytes = 0
        while not self._stop.wait(LEDGER_POLL_SECONDS):
            now = time.time()
            ledger_bytes = sum(path.stat().st_size for path in self._mount.glob("dyntrain/*/*/ledger/*.intents.jsonl"))
            if ledger_bytes == former_ledger_bytes:
                continue
            if self._last_growth:
                self._standstills.append(Standstill(self._last_growth, now))
                if now - self._last_growth > PRINTED_STANDSTILL_SECONDS:
                    self._print_line(f"the job trains again, after {now - self._last_growth:.0f} s without a step")
            former_ledger_bytes, self._last_growth = ledger_bytes, now
            self.first_step.set()


class StateReader:
    """Read the cluster's state from the sources that users have: the AWS API, `dyntrain status` and the job's files."""

    def __init__(self, cloud: Cloud, cluster: Cluster, mount: Path) -> None:
        self._cloud, self._cluster, self._mount = cloud, cluster, mount
        self._ec2, self._autoscaling = cloud.client("ec2"), cloud.client("autoscaling")

    def read_state(self) -> ClusterState:
        """Read the states of the cluster's instances, group, nodes and job. Raises BotoCoreError or ClientError when a
        call to AWS fails, and RuntimeError when `dyntrain status` fails.
        """
        instance_pages = self._ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": f"tag:{OWNER_TAG}", "Values": [self._cluster.name]}]
        )
        instances = [
            instance
            for page in instance_pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        ]
        tags_by_instance = {
            instance["InstanceId"]: {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
            for instance in instances
        }
        group = self._autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[self._cluster.group])[
            "AutoScalingGroups"
        ][0]
        status = self._read_dyntrain_status()
        return ClusterState(
            states={instance["InstanceId"]: instance["State"]["Name"] for instance in instances},
            tags={instance: instance_tags.get(STATUS_TAG, "") for instance, instance_tags in tags_by_instance.items()},
            base=frozenset(
                instance for instance, instance_tags in tags_by_instance.items() if BASE_TAG in instance_tags
            ),
            grouped={instance["InstanceId"]: instance["LifecycleState"] for instance in group["Instances"]},
            capacity=group["DesiredCapacity"],
            nodes={node["instance"]: (node["status"], node["reason"]) for node in status["nodes"]},
            job=status["job"]["state"] if status["job"] and status["job"]["alive"] else "",
        )

    def _read_dyntrain_status(self) -> dict[str, Any]:
        command = (sys.executable, "-m", "dyntrain", "status", "--cluster", self._cluster.name, "--json", "--gone")
        process = subprocess.run(
            command, env=self._cloud.program_environment, capture_output=True, text=True, timeout=60, check=False
        )
        if process.returncode:
            raise RuntimeError(f"dyntrain status: {process.stderr.strip()}")
        cluster_status: dict[str, Any] = json.loads(process.stdout)["clusters"][0]
        return cluster_status

    def final_accuracy(self) -> float | None:
        """The validation accuracy of the last epoch that ended, or None if no epoch has ended."""
        ended_epochs = self._ended_epochs()
        return ended_epochs[-1].metrics.get("val_accuracy") if ended_epochs else None

    def count_ended_epochs(self) -> int:
        return len(self._ended_epochs())

    def _ended_epochs(self) -> list[Segment]:
        """The job's segments (parts of epochs) that ended with the end of an epoch."""
        return [event for event in self.events() if isinstance(event, Segment) and not event.end.offset]

    def events(self) -> list[Event]:
        """All events that the job has recorded so far."""
        return list(read_events(self._job_folder().events))

    def cool_down_seconds_left(self, now: float) -> float:
        """Seconds until the job admits all failed nodes again, because their last cool-down has ended."""
        return max(0.0, last_cool_down_end(self.events()) - now)

    def lost_and_doubled_samples(self) -> tuple[int | None, int | None]:
        """The numbers of training samples that were lost and that were used twice, or (None, None) if no ledger can be
        read.
        """
        try:
            audit = audit_directory(self._job_folder().ledger)
        except (OSError, ValueError):
            return None, None
        return audit.lost, audit.doubled

    def _job_folder(self) -> JobFolder:
        job_name = read_current_job(current_job_file(self._mount, self._cluster.name)).job
        return JobFolder.of(self._mount, self._cluster.name, job_name)


def run_chaos(
    duration: float,
    seed: int,
    report_path: Path,
    directory: Path | None,
    namespaces: bool,
    engine: str = "pslite",
) -> int:
    """Run a fault-injection hunt and write its report. Returns exit code 0 if the report has no problems, otherwise
    exit code 1. Raises LocalCloudError when the cloud or the job cannot start. With `namespaces`, each machine has a
    network link of its own. With `namespaces`, the hunt also cuts and slows network links, and makes the shared volume
    hang if this host can mount a volume that can hang.
    """
    began_at = time.monotonic()

    def print_line(line: str) -> None:
        print(f"{time.monotonic() - began_at:7.1f}  {line}", flush=True)

    # measured before the cloud adds load; at least a minute of the plan remains
    slow_factor = min(slowness(), max(1.0, duration / LEAST_PLAN_SECONDS))
    if slow_factor > 1.0:
        print_line(f"this host is busy: faults come {slow_factor:.1f} times as far apart as planned")
    with Cloud(
        state_dir=directory, resync_seconds=RESYNC_SECONDS, options=Options(seed=seed, namespaces=namespaces)
    ) as cloud:
        print_line(f"embedded cloud at {cloud.endpoint}, files in {cloud.state_dir}")
        volume = _mount_hanging_volume(cloud, print_line) if namespaces else None
        try:
            fault_injector, users, verdict, job_report = _run_hunt(
                cloud, volume, duration, seed, slow_factor, print_line, engine
            )
            for line in [] if verdict.is_clean else last_log_lines(cloud.state_dir, verdict.stuck):
                print(line)
        finally:
            if volume is not None:
                volume.close(keep=directory is not None)
    hunt_report = build_hunt_report(
        seed,
        time.monotonic() - began_at,
        fault_injector.fault_counts,
        users.change_count,
        verdict,
        census.stray_processes(cloud.endpoint),
        job_report,
    )
    report_path.parent.mkdir(parents=True, exist_ok=True)
    report_path.write_text(json.dumps(hunt_report, indent=2) + "\n")
    print(json.dumps(hunt_report, indent=2))
    problem_lines = report_problems(hunt_report)
    for problem in problem_lines:
        print(f"PROBLEM: {problem}")
    return 1 if problem_lines else 0


def _mount_hanging_volume(cloud: Cloud, print_line: Callable[[str], None]) -> HangingVolume | None:
    """Mount a volume that can hang over the shared folder, which must be empty. Returns None if this host cannot mount
    a volume that can hang.
    """
    volume = HangingVolume(cloud.state_dir / "shared")
    try:
        volume.create_and_mount()
    except VolumeUnavailable as error:
        print_line(f"the hunt runs without faults of the volume: {error}")
        return None
    return volume


def _run_hunt(
    cloud: Cloud,
    volume: HangingVolume | None,
    duration: float,
    seed: int,
    slow_factor: float,
    print_line: Callable[[str], None],
    engine: str,
) -> tuple[FaultInjector, SimulatedUsers, Verdict, dict[str, Any]]:
    shared_folder = cloud.state_dir / "shared"
    write_prepare_script(shared_folder)
    command = digits_command(EPOCHS, "--batch-size", "100")
    parameters = {"SegmentSteps": "5", "NodeFields": f'"engine": "{engine}"'}
    cluster = create_stack(cloud, CLUSTER_NAME, command, parameters, CLUSTER_POLICY)
    step_monitor, state_reader, fault_injector = (
        StepMonitor(shared_folder, print_line),
        StateReader(cloud, cluster, shared_folder),
        FaultInjector(cloud.disturbance, cloud.network, print_line, volume),
    )
    users = SimulatedUsers(
        cloud.client("ec2"),
        cloud.client("autoscaling"),
        cluster,
        lambda instance: cloud.instance_state(instance) == "running",
        print_line,
    )
    step_monitor.start()
    start_deadline = Deadline(START_SECONDS, headroom=1.0)
    while not step_monitor.first_step.wait(start_deadline.seconds_left or LEDGER_POLL_SECONDS):
        if start_deadline.passed():
            raise JobNeverStarted(
                f"the job made no training step within {start_deadline.bound:.0f} s, before any fault; see {cloud.logs}"
            )
    print_line("the base nodes train; the faults begin")
    users.start(stretch_plan(plan_changes(seed, duration, LARGEST_GROUP), slow_factor, duration))
    fault_injector.run(
        stretch_plan(
            plan_faults(seed, duration, links=cloud.network is not None, volume=volume is not None),
            slow_factor,
            duration,
        ),
        duration,
    )
    users.finish_due_changes()
    fault_injector.end_faults()
    faults_ended_at = time.time()
    print_line("the faults have ended")
    verdict = _wait_until_settled(state_reader, users, print_line)
    if verdict.is_clean:
        print_line("the state is as requested; now all nodes except the base nodes are removed")
        users.remove_elastic_nodes()
        verdict = _wait_until_settled(state_reader, users, print_line)
    standstills = step_monitor.stop()
    lost_count, doubled_count = state_reader.lost_and_doubled_samples()
    job_report = {
        "samples_lost": lost_count,
        "samples_doubled": doubled_count,
        "final_accuracy": state_reader.final_accuracy(),
        **standstill_report(standstills, state_reader.events(), faults_ended_at),
    }
    return fault_injector, users, verdict, job_report


def _wait_until_settled(state_reader: StateReader, users: SimulatedUsers, print_line: Callable[[str], None]) -> Verdict:
    """Wait until the cluster's state is as the users requested and two more epochs have ended, and return the last
    verdict. If the state is not as requested within a time limit, the returned verdict lists the differences.
    """
    time_limit = QUIET_SECONDS + state_reader.cool_down_seconds_left(time.time())
    deadline = Deadline(time_limit, headroom=1.0)
    if time_limit > QUIET_SECONDS:
        print_line(f"a node that failed too often cools down for {time_limit - QUIET_SECONDS:.0f} s more")
    clean_verdict_count, former_epoch_count, printed_line = 0, state_reader.count_ended_epochs(), ""
    while True:
        try:
            verdict = judge_state(state_reader.read_state(), users.requests)
        except (BotoCoreError, ClientError, RuntimeError) as error:
            verdict = Verdict(stuck=[f"the state cannot be read: {error}"])
        clean_verdict_count = clean_verdict_count + 1 if verdict.is_clean else 0
        if clean_verdict_count >= CLEAN_VERDICTS and state_reader.count_ended_epochs() >= former_epoch_count + 2:
            return verdict
        if deadline.passed():
            if verdict.is_clean:
                new_epoch_count = state_reader.count_ended_epochs() - former_epoch_count
                verdict.stuck.append(f"the training hardly goes on: {new_epoch_count} epochs in {time_limit:.0f} s")
            return verdict
        if (difference_line := "; ".join(verdict.stuck)) != printed_line:
            print_line(
                f"not yet as requested: {difference_line}"
                if difference_line
                else "the state is as requested; two more epochs must end"
            )
            printed_line = difference_line
        time.sleep(SECONDS_BETWEEN_VERDICTS)
