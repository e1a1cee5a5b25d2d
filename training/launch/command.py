r"""Launches an elastic job by hand, with the flags of AWS Dynamic Training's launcher.

    python -m dyntrain.training.launch -n 2 -H hosts --launcher ssh --elastic-training-enabled True \
        python train.py --kv-store dist_device_sync

The job's directory is the current directory, which all hosts must share. The launcher creates the file `host_worker` in
the job's directory. A host joins the job when its address is added to `host_worker`, and leaves when its address is
removed (`dyntrain.training.launch.host_file`). The launcher's process is also the job's coordinator. When the launcher
ends, all processes that it started end too. On a cluster's node, another process is the coordinator
(`dyntrain.training.launch.on_cluster`).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dyntrain.controller.contract.messages import MOST_WORKERS
from dyntrain.training.coordinator.current_job import begin_job, commits_below
from dyntrain.training.coordinator.host_log import HOST_LOG
from dyntrain.training.coordinator.server import Coordinator
from dyntrain.training.host.parentage import descendants, kill_all
from dyntrain.training.launch.curves import write_curves
from dyntrain.training.launch.earlier_job import decide, read_earlier_job
from dyntrain.training.launch.host_file import FileHosts, instance_of
from dyntrain.training.launch.hosts import address_of, reachable_address
from dyntrain.training.launch.on_cluster import launch_on_cluster, socket_path
from dyntrain.training.launch.plan import LaunchError, LaunchPlan, is_for_cluster, parse, parse_for_cluster
from dyntrain.training.layout import JobFolder
from dyntrain.training.protocol.node_spec import NodeSpec
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import Options
from dyntrain.training.timeouts import timeout
from pydantic import SecretStr

CLUSTER = "manual"  # the cluster's name in the files of a launched job
WATCH_SECONDS = 0.2  # between checks for hosts without a node
END_SECONDS = 15.0  # for a node to end its processes, after its input was closed
# ssh cannot ask about host keys here, so unknown keys are accepted, and changed keys refused
SSH = (
    "ssh",
    "-o",
    "BatchMode=yes",
    "-o",
    "StrictHostKeyChecking=accept-new",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=5",
)
COPY_SECONDS = 600.0  # longest copy of the job's directory to one host
CHANGED_WHILE_READ = 1  # tar's exit code when a log grew meanwhile, though the copy is complete
FAILED = 1  # exit code
MAX_STARTS = 5  # of the node's program on a host that stays in the membership
log = logging.getLogger("launch")


def node_command(plan: LaunchPlan, destination: Sequence[str], directory: Path) -> list[str]:
    """Return the command that starts a node's program, through ssh unless the launcher is "local".

    `destination` contains ssh's arguments that name the host.

    The node's program reads its settings from its standard input.
    """
    local_command = [sys.executable, "-m", "dyntrain.node_bootstrap", "launched"]
    if plan.launcher == "local":
        return local_command
    remote_command = f"cd {shlex.quote(plan.destination or str(directory))} && exec {shlex.join(local_command)}"
    return [*SSH, *destination, remote_command]


@dataclass
class Launcher:
    """Keeps the node's program running on each host of the job."""

    plan: LaunchPlan
    directory: Path  # the job's directory
    hosts: FileHosts
    _node_processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    _start_counts: dict[str, int] = field(default_factory=dict)  # starts of the node's program, by host

    async def keep_nodes_running(self) -> None:
        """Keep the node's program running on each host until this task is cancelled, then stop all nodes."""
        try:
            while True:
                await self.start_missing_nodes()
                await asyncio.sleep(WATCH_SECONDS)
        finally:
            await asyncio.gather(*map(_end_node, self._node_processes.values()))

    async def start_missing_nodes(self) -> None:
        """Start the node's program on each host where it is not running.

        Raises LaunchError if the program has failed more than `MAX_STARTS` times on every host.
        """
        for host in self.hosts.hosts if self.hosts.endpoint is not None and not self.hosts.over else ():
            await self._keep_node_running(host)
        self._start_counts = {
            host: start_count for host, start_count in self._start_counts.items() if host in self.hosts.hosts
        }
        if all(self._start_counts.get(host, 0) > MAX_STARTS for host in self.hosts.hosts):
            raise LaunchError("no host is left to train on: see the errors of ssh and of the nodes above")

    async def _keep_node_running(self, host: str) -> None:
        process = self._node_processes.get(host)
        if process is not None and process.returncode is None:
            return
        if process is not None and process.returncode == 0:
            del self._node_processes[host]  # the node left by order; if it is added again, the count restarts
            self._start_counts[host] = 0
        start_count = self._start_counts[host] = self._start_counts.get(host, 0) + 1
        if start_count > MAX_STARTS:
            if start_count == MAX_STARTS + 1:
                self._give_up_on_host(host)
            return
        is_base_host = host in self.plan.hosts
        runs_server = self.plan.serving == "all" or host in self.plan.hosts[: self.plan.servers]
        if self.plan.destination and self.plan.launcher == "ssh":
            await _copy_directory(self.directory, self.hosts.destination(host), self.plan.destination)
        if runs_server:
            log.info("Launching server node at ip: %s", host)
        log.info("Launching worker node at ip: %s", host)
        self._node_processes[host] = await self._launch_node(host, is_base_host, runs_server)

    def _give_up_on_host(self, host: str) -> None:
        """Log that the node on this host is not started again.

        Raises LaunchError if the job has not begun and needs this host.
        """
        failure_text = f"node at ip: {host} ended {MAX_STARTS} times, and is not launched again; see its errors above"
        job_has_begun = self.hosts.last_report is not None and self.hosts.last_report.generation > 0
        if host in self.plan.hosts and not job_has_begun:
            raise LaunchError(f"{failure_text}. Repair this host, or remove it from the host file and lower -n")
        log.error("%s. Remove it from host_worker; add it again once it is repaired", failure_text)

    async def _launch_node(self, host: str, is_base_host: bool, runs_server: bool) -> asyncio.subprocess.Process:
        endpoint = self.hosts.endpoint
        assert endpoint is not None
        node_spec = NodeSpec(
            instance_id=instance_of(host),
            private_ip=host,
            endpoint=endpoint,
            token=SecretStr(self.hosts.token),
            mount=str(self.directory),
            base=is_base_host,
            servers=1 if runs_server else 0,
            warm_spares=self.plan.warm_spares,
            slots=self.plan.workers_per_node or self.hosts.slots(host) or 1,
            liveness_seconds=self.plan.clocks.liveness,
            progress_seconds=self.plan.clocks.progress,
            command=self.plan.command,
            worker_environment=self.plan.worker_environment,
            server_environment=self.plan.server_environment,
            dt_scripts=self.plan.dt_scripts,
        )
        process = await asyncio.create_subprocess_exec(
            *node_command(self.plan, self.hosts.destination(host), self.directory),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(node_spec.to_json().encode() + b"\n")
            await process.stdin.drain()
        return process


async def _copy_directory(directory: Path, host: Sequence[str], destination: str) -> None:
    """Copy `directory`, without its folder `dyntrain`, into the folder `destination` of a host, through tar and ssh.

    Raises LaunchError if the copy fails or takes longer than `COPY_SECONDS`.
    """
    quoted_folder = shlex.quote(destination)
    unpack_command = [*SSH, *host, f"mkdir -p {quoted_folder} && exec tar -C {quoted_folder} -xzf -"]
    pipe_read_end, pipe_write_end = os.pipe()
    try:
        tar_process = await asyncio.create_subprocess_exec(
            "tar", "-C", str(directory), "--exclude=./dyntrain", "-czf", "-", ".", stdout=pipe_write_end
        )
        ssh_process = await asyncio.create_subprocess_exec(*unpack_command, stdin=pipe_read_end)
    finally:
        os.close(pipe_read_end)
        os.close(pipe_write_end)
    try:
        async with timeout(COPY_SECONDS):
            tar_exit_code, ssh_exit_code = await asyncio.gather(tar_process.wait(), ssh_process.wait())
    except TimeoutError:
        raise LaunchError(
            f"{directory} could not be copied to {host[-1]}:{destination} within {COPY_SECONDS:.0f} s"
        ) from None
    finally:
        for process in (tar_process, ssh_process):
            if process.returncode is None:
                process.kill()
                await process.wait()
    if tar_exit_code > CHANGED_WHILE_READ or ssh_exit_code:
        raise LaunchError(
            f"{directory} could not be copied to {host[-1]}:{destination}; see the error of tar or ssh above"
        )


async def _end_node(process: asyncio.subprocess.Process) -> None:
    """Stop a node by closing its program's standard input.

    If the program is still running after `END_SECONDS`, kill its descendants, and after the same time the program
    itself.
    """
    assert process.stdin is not None
    process.stdin.close()
    for kills_descendants in (True, False):
        try:
            async with timeout(END_SECONDS):
                await process.wait()
                return
        except TimeoutError:
            kill_all(descendants(process.pid) if kills_descendants else [process.pid])
    await process.wait()


@contextlib.contextmanager
def launch_lock(directory: Path) -> Iterator[None]:
    """Hold the lock that lets only one launch run in `directory` at a time.

    Raises LaunchError if another launch holds the lock.
    """
    path = directory / "dyntrain" / CLUSTER / "launch.lock"
    with contextlib.ExitStack() as lock_stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock_file = lock_stack.enter_context(path.open("ab"))
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LaunchError(
                f"another launch runs in {directory}: end it first, or launch in another directory"
            ) from error
        except OSError as error:
            raise LaunchError(f"the job's files cannot be written: {error}") from error
        yield


async def launch(plan: LaunchPlan, directory: Path, hosts: FileHosts | None = None) -> int:
    """Run the job `plan` in `directory`.

    Returns 0 if the job finished, 1 if the job failed, and 130 after a signal to stop. If `hosts` is given, no host
    file is read.
    """
    decision = decide(read_earlier_job(directory, CLUSTER), plan.command, plan.resume)
    if decision.sentence:
        log.info("%s", decision.sentence)
    current_job = decision.job or begin_job(directory, CLUSTER, time.time(), plan.command)
    job_name = current_job.job
    hosts = hosts or FileHosts(
        directory,
        plan.hosts,
        minimum=1,
        elastic=plan.elastic,
        look_up=lambda name: reachable_address(address_of(name, by_ssh=plan.launcher == "ssh"), plan.hosts),
        destinations=plan.destinations,
        slots=plan.slots,
    )
    if plan.elastic:
        log.info("Created worker host file %s", hosts.file)
        log.info("Created worker host log file %s", directory / HOST_LOG)
    options = Options(
        cluster=CLUSTER,
        job=job_name,
        started_at=current_job.started_at,
        limits=Limits(1, MOST_WORKERS),
        workers=len(plan.hosts),
        clocks=plan.clocks,
        pause_seconds=plan.pause_seconds,
        segment_steps=plan.segment_steps,
        boundary=plan.boundary,
        state_transfer=plan.state_transfer,
        servers=plan.serving,
        checkpoint_dir=commits_below(plan.checkpoint_dir, CLUSTER, job_name),
    )
    folder, master_id = JobFolder.of(directory, CLUSTER, job_name), instance_of(plan.master or plan.hosts[0])
    try:
        coordinator = Coordinator(
            options, folder, hosts, plan.host, master_id, plan.port, events=plan.events, resumes=plan.resume
        )
    except OSError as error:
        raise LaunchError(f"the job's files cannot be written: {error}") from error

    async with write_curves(folder.root, plan.tensorboard, lambda: hosts.over):
        exit_code = await _run_job(plan, directory, hosts, coordinator)
    if exit_code == FAILED:
        failure_reason = one_line(hosts.last_report.reason if hosts.last_report is not None else "")
        log.error("%s has failed: %s; what happened is in %s", job_name, failure_reason, folder.events)
    if exit_code == 0 and (absent_hosts := hosts.untrained_hosts()):
        log.error("%s has finished without %s, which never joined; see its errors above", job_name, absent_hosts)
        return FAILED
    return exit_code


async def _run_job(plan: LaunchPlan, directory: Path, hosts: FileHosts, coordinator: Coordinator) -> int:
    """Run the coordinator and the nodes until the job ends or SIGINT or SIGTERM arrives. Returns the exit code."""
    coordinator_task = asyncio.create_task(coordinator.run())
    nodes_task = asyncio.create_task(Launcher(plan, directory, hosts).keep_nodes_running())
    interrupt_event = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_number, interrupt_event.set)
    interrupt_task = asyncio.create_task(interrupt_event.wait())
    try:
        await asyncio.wait([coordinator_task, nodes_task, interrupt_task], return_when=asyncio.FIRST_COMPLETED)
        if interrupt_event.is_set():
            log.info("interrupted: all processes are ended")
            return 130
        (nodes_task if nodes_task.done() else coordinator_task).result()
    finally:
        for task in (nodes_task, coordinator_task, interrupt_task):
            task.cancel()
        await asyncio.gather(nodes_task, coordinator_task, interrupt_task, return_exceptions=True)
    return 0 if hosts.last_report is not None and hosts.last_report.state == "finished" else FAILED


def one_line(reason: str) -> str:
    """Shorten an error text that ends with a process's output to one line: its first line and its last line."""
    first_line, *output_lines = [line.strip() for line in reason.splitlines() if line.strip()] or [
        "for a reason that is not known"
    ]
    return f"{first_line} {output_lines[-1]}" if output_lines else first_line


def main(argv: Sequence[str] | None = None) -> int:
    """Run `dyntrain launch` with these arguments, and return the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        if (path := socket_path()) is not None and is_for_cluster(argv, os.environ.get("DEEPLEARNING_WORKERS_PATH")):
            return launch_on_cluster(path, parse_for_cluster(argv))
        plan = parse(argv)
        with launch_lock(Path.cwd()):
            return asyncio.run(launch(plan, Path.cwd()))
    except LaunchError as error:
        print(f"launch: {error}", file=sys.stderr)  # noqa: T201
        return 2
