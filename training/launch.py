"""Launches an elastic job by hand, with the flags of AWS Dynamic Training's launcher.

    python -m training.launch -n 2 -H hosts --launcher ssh --elastic-training-enabled True python train.py --kv-store dist_device_sync

The job's directory is the one that this is started in; it must be shared by all hosts. There it makes `host_worker`: add an address to it and
that host joins, remove one and it leaves (`training.host_file`). This process is the coordinator; when it ends, so does everything it started.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import re
import shlex
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import SecretStr

from node_bootstrap.parentage import descendants, kill_all
from training.clocks import Clocks
from training.coordinator import Coordinator, add_clocks, commits_below, open_job
from training.generation import Limits
from training.host_file import FileHosts, instance_of
from training.knowledge import Options
from training.layout import JobFolder
from training.nodes import NodePost

CLUSTER = "manual"
WATCH_SECONDS = 0.2
END_SECONDS = 15.0  # for the nodes to end their processes, after their input was closed
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5")
COPY_SECONDS = 600.0  # for one host
CHANGED_WHILE_READ = 1  # tar's exit code when a log grew meanwhile: what was read is whole
RESTARTS = 5  # of a node process whose host stays wanted
log = logging.getLogger("launch")


class LaunchError(ValueError):
    """The command line, the host file or a host is wrong; says which and what to do."""


@dataclass(frozen=True)
class Plan:
    """A checked command line."""

    hosts: tuple[str, ...]
    servers: int
    launcher: str
    elastic: bool
    host: str
    port: int
    command: tuple[str, ...]
    clocks: Clocks
    pause_seconds: float
    worker_environment: dict[str, str]
    server_environment: dict[str, str]
    destination: str | None
    warm_spares: int
    segment_steps: int | None
    boundary: Literal["epoch", "segment"]
    checkpoint_dir: Path | None
    events: Path | None


def parse(argv: Sequence[str] | None) -> Plan:
    """Raises LaunchError."""
    parser = argparse.ArgumentParser(prog="python -m training.launch", description="Launch a training job whose workers may join and leave.")
    parser.add_argument("-n", "--num-workers", type=int, required=True, help="base hosts: the first so many of the host file")
    parser.add_argument("-s", "--num-servers", type=int, help="base hosts that also serve; default: all of them")
    parser.add_argument("-H", "--hostfile", type=Path, help="one host a line; default with --launcher local: loopback addresses")
    parser.add_argument("--launcher", choices=["local", "ssh"], default="ssh")
    parser.add_argument("--env", action="append", default=[], metavar="NAME[:VALUE]", help="for all processes; without a value, that of here")
    parser.add_argument("--env-server", action="append", default=[], metavar="NAME:VALUE")
    parser.add_argument("--env-worker", action="append", default=[], metavar="NAME:VALUE")
    parser.add_argument("--sync-dst-dir", help="copy this directory there on each host first, and run there")
    parser.add_argument("--elastic-training-enabled", type=_truth, default=True, metavar="{True,False}")
    parser.add_argument("--host", help="address that hosts reach this machine at; default: the first host")
    parser.add_argument("--warm-spares", type=int, default=0, metavar="N", help="worker processes a host keeps ready; each has a worker's memory")
    parser.add_argument("--port", type=int, default=0, help="port of the coordinator; default: a free one")
    add_clocks(parser)
    parser.add_argument("--segment-steps", type=int, help="also let membership change every so many steps in mid-epoch")
    parser.add_argument("--boundary", choices=["epoch", "segment"], default="epoch", help="where edits of host_worker take effect")
    parser.add_argument("--checkpoint-dir", type=Path, help="where commits are kept, shared by all hosts; default: in this directory")
    parser.add_argument("--events", type=Path, help="write what happens there too, a JSON object a line")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the training command")
    args = parser.parse_args(argv)
    hosts = _hosts(args.hostfile, args.num_workers, args.launcher)
    if not args.command:
        raise LaunchError("no training command: put it after the options, as in: ... python train.py")
    if args.warm_spares < 0:
        raise LaunchError(f"--warm-spares {args.warm_spares}: must be 0 or more")
    servers = len(hosts) if args.num_servers is None else args.num_servers
    if not 1 <= servers <= len(hosts):
        raise LaunchError(f"--num-servers {servers}: must be between 1 and the number of base hosts ({len(hosts)})")
    try:
        clocks = Clocks(args.liveness_seconds, args.progress_seconds)
    except ValueError as error:
        raise LaunchError(str(error)) from error
    if args.segment_steps is not None and args.segment_steps < 1:
        raise LaunchError(f"--segment-steps {args.segment_steps}: must be at least 1")
    common = _environment(args.env)
    return Plan(
        hosts,
        servers,
        args.launcher,
        args.elastic_training_enabled,
        args.host or hosts[0],
        args.port,
        tuple(args.command),
        clocks,
        args.pause_seconds,
        {**common, **_environment(args.env_worker)},
        {**common, **_environment(args.env_server)},
        args.sync_dst_dir,
        args.warm_spares,
        args.segment_steps,
        args.boundary,
        args.checkpoint_dir,
        args.events,
    )


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise argparse.ArgumentTypeError(f"{text!r}: True or False")
    return text.lower() in ("true", "1")


def _hosts(file: Path | None, workers: int, launcher: str) -> tuple[str, ...]:
    if workers < 1:
        raise LaunchError(f"--num-workers {workers}: must be at least 1")
    if file is None:
        if launcher == "ssh":
            raise LaunchError("--launcher ssh needs -H HOSTFILE")
        return tuple(f"127.0.0.{i + 1}" for i in range(workers))
    try:
        names = [line.split()[0] for line in file.read_text().splitlines() if line.split() and not line.lstrip().startswith("#")]
        hosts = tuple(socket.gethostbyname(name) for name in names[:workers])
    except OSError as error:
        raise LaunchError(f"host file {file}: {error}") from error
    if len(set(hosts)) < workers:
        raise LaunchError(f"host file {file} names {len(set(hosts))} different hosts, -n asks for {workers}")
    return hosts


def _environment(pairs: Sequence[str]) -> dict[str, str]:
    environment = {}
    for pair in pairs:
        match = re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)(?:[:=](.*))?", pair, re.DOTALL)
        if not match:
            raise LaunchError(f"{pair!r} is no NAME:VALUE")
        environment[match[1]] = os.environ.get(match[1], "") if match[2] is None else match[2]
    return environment


def node_command(plan: Plan, host: str, directory: Path) -> list[str]:
    """The argv that starts a node. What a remote shell reads is quoted; `host` is an address. The post goes through the pipe."""
    here = [sys.executable, "-m", "training.nodes"]
    if plan.launcher == "local":
        return here
    there = f"cd {shlex.quote(plan.destination or str(directory))} && exec {shlex.join(here)}"
    return [*SSH, "--", host, there]


@dataclass
class Launcher:
    plan: Plan
    directory: Path
    hosts: FileHosts
    job: str
    _running: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    _starts: dict[str, int] = field(default_factory=dict)

    async def watch(self) -> None:
        """Keep a node on every host that is wanted, until cancelled; then all of them end."""
        try:
            while True:
                for host in self.hosts.hosts if self.hosts.endpoint is not None else ():
                    await self._keep(host)
                await asyncio.sleep(WATCH_SECONDS)
        finally:
            await asyncio.gather(*map(_end, self._running.values()))

    async def _keep(self, host: str) -> None:
        process = self._running.get(host)
        if process is not None and process.returncode is None:
            return
        if process is not None and process.returncode == 0:
            del self._running[host]  # it left as it was told to; wanted again, it starts afresh
            self._starts[host] = 0
        starts = self._starts[host] = self._starts.get(host, 0) + 1
        if starts > RESTARTS:
            if starts == RESTARTS + 1:
                log.error("node at ip: %s ended %d times, it is not launched again; take it out of host_worker and look at its log", host, RESTARTS)
            return
        base = host in self.plan.hosts
        serves = host in self.plan.hosts[: self.plan.servers]
        if self.plan.destination and self.plan.launcher == "ssh":
            await _copy(self.directory, host, self.plan.destination)
        if serves:
            log.info("Launching server node at ip: %s", host)
        log.info("Launching worker node at ip: %s", host)
        self._running[host] = await self._launch(host, base, serves)

    async def _launch(self, host: str, base: bool, serves: bool) -> asyncio.subprocess.Process:
        endpoint = self.hosts.endpoint
        assert endpoint is not None
        post = NodePost(
            cluster=CLUSTER,
            job=self.job,
            instance_id=instance_of(host),
            ip=host,
            url=endpoint.url,
            certificate=endpoint.certificate,
            token=SecretStr(self.hosts.token),
            mount=str(self.directory),
            base=base,
            serves=serves,
            warm_spares=self.plan.warm_spares,
            liveness_seconds=self.plan.clocks.liveness,
            progress_seconds=self.plan.clocks.progress,
            command=self.plan.command,
            worker_environment=self.plan.worker_environment,
            server_environment=self.plan.server_environment,
        )
        process = await asyncio.create_subprocess_exec(
            *node_command(self.plan, host, self.directory), stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(post.to_json().encode() + b"\n")
            await process.stdin.drain()
        return process


async def _copy(directory: Path, host: str, destination: str) -> None:
    """The directory without the job's own files, through tar and ssh, which are everywhere. Raises LaunchError, at the latest after COPY_SECONDS."""
    there = shlex.quote(destination)
    unpack = [*SSH, "--", host, f"mkdir -p {there} && exec tar -C {there} -xzf -"]
    read, write = os.pipe()
    try:
        sender = await asyncio.create_subprocess_exec("tar", "-C", str(directory), "--exclude=./dyntrain", "-czf", "-", ".", stdout=write)
        receiver = await asyncio.create_subprocess_exec(*unpack, stdin=read)
    finally:
        os.close(read)
        os.close(write)
    try:
        async with asyncio.timeout(COPY_SECONDS):
            packed, unpacked = await asyncio.gather(sender.wait(), receiver.wait())
    except TimeoutError:
        raise LaunchError(f"{directory} could not be copied to {host}:{destination} within {COPY_SECONDS:.0f} s") from None
    finally:
        for process in (sender, receiver):
            if process.returncode is None:
                process.kill()
                await process.wait()
    if packed > CHANGED_WHILE_READ or unpacked:
        raise LaunchError(f"{directory} could not be copied to {host}:{destination}; tar or ssh says why above")


async def _end(process: asyncio.subprocess.Process) -> None:
    """The end of its input ends a node. Of one that does not end in time all below it is killed: the process above it then clears up and ends."""
    assert process.stdin is not None
    process.stdin.close()
    for below in (True, False):
        try:
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
                return
        except TimeoutError:
            kill_all(descendants(process.pid) if below else [process.pid])
    await process.wait()


async def launch(plan: Plan, directory: Path) -> int:
    """0: the job finished; 1: it failed; 130: interrupted."""
    job, started_at = open_job(directory, CLUSTER, time.time())
    hosts = FileHosts(directory, plan.hosts, minimum=1, elastic=plan.elastic)
    if plan.elastic:
        log.info("Created worker host file %s", hosts.file)
        log.info("Created worker host log file %s", hosts.log)
    options = Options(
        cluster=CLUSTER,
        job=job,
        started_at=started_at,
        limits=Limits(1, 1024),
        workers=len(plan.hosts),
        clocks=plan.clocks,
        pause_seconds=plan.pause_seconds,
        segment_steps=plan.segment_steps,
        boundary=plan.boundary,
        checkpoint_dir=commits_below(plan.checkpoint_dir, CLUSTER, job),
    )
    folder, master = JobFolder.of(directory, CLUSTER, job), instance_of(plan.hosts[0])
    try:
        coordination = Coordinator(options, folder, hosts, plan.host, master, plan.port, events=plan.events)
    except OSError as error:
        raise LaunchError(f"the job's files cannot be written: {error}") from error
    coordinator = asyncio.create_task(coordination.run())
    nodes = asyncio.create_task(Launcher(plan, directory, hosts, job).watch())
    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
    waiting = asyncio.create_task(interrupted.wait())
    try:
        await asyncio.wait([coordinator, nodes, waiting], return_when=asyncio.FIRST_COMPLETED)
        if interrupted.is_set():
            log.info("interrupted: everything is ended")
            return 130
        (nodes if nodes.done() else coordinator).result()
    finally:
        for task in (nodes, coordinator, waiting):
            task.cancel()
        await asyncio.gather(nodes, coordinator, waiting, return_exceptions=True)
    return 0 if hosts.reported is not None and hosts.reported.state == "finished" else 1


def main(argv: Sequence[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("websockets").setLevel(logging.WARNING)
    try:
        return asyncio.run(launch(parse(argv), Path.cwd()))
    except LaunchError as error:
        print(f"launch: {error}", file=sys.stderr)  # noqa: T201
        return 2


if __name__ == "__main__":
    sys.exit(main())
