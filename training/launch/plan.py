"""Parses the command line of `dyntrain launch`, and checks the arguments with the host file."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from dyntrain.controller.contract.command_words import command_words
from dyntrain.controller.contract.errors import Misconfigured
from dyntrain.controller.contract.folders import not_local_problem
from dyntrain.missing import advice, find_absent
from dyntrain.training.checks.findings import CHECKS_VARIABLE, IGNORE_VARIABLE, MODES, codes_in
from dyntrain.training.coordinator.command import add_clock_options, add_transfer_option
from dyntrain.training.feed.places import ChannelError, checked_source
from dyntrain.training.launch.hosts import (
    Host,
    HostError,
    HostLine,
    address_of,
    is_local_address,
    reachable_address,
    read_lines,
    resolve_hosts,
)
from dyntrain.training.protocol.clocks import Clocks
from dyntrain.training.protocol.engines import VARIABLE as ENGINE
from dyntrain.training.protocol.engines import EngineName
from dyntrain.training.protocol.slots import MOST_SLOTS
from dyntrain.training.worker.channel.objects import channel_variable

ALL, SLOTS = "all", "slots"  # values of --num-servers and of --workers-per-node
TENSORBOARD_PACKAGES, HOROVOD_PACKAGES = ("tensorboard",), ("horovod",)
NO_COMMAND = "no training command: put it after the options, as in: ... python train.py"
# options that also apply on a cluster; -n and -H only repeat the cluster's own
_CLUSTER_OPTIONS = (
    "num_workers",
    "hostfile",
    "launcher",
    "env",
    "env_worker",
    "channel",
    "engine",
    "ignore",
    "checks",
    "dt_scripts",
    "command",
)


class LaunchError(ValueError):
    """A job cannot be launched: the command line, the host file or a host is wrong. The message says what to do."""


@dataclass(frozen=True)
class LaunchPlan:
    """The checked command line of a launch on given hosts."""

    hosts: tuple[str, ...]  # addresses of the base hosts
    servers: int  # number of parameter servers
    launcher: str  # "ssh" or "local"
    elastic: bool  # whether hosts may join and leave
    host: str  # the coordinator's address
    port: int  # the coordinator's port; 0: any free port
    command: tuple[str, ...]  # the training command
    clocks: Clocks  # time limits of the job
    pause_seconds: float  # after which a job without enough workers or ps-lite processes fails
    worker_environment: dict[str, str]  # variables of the workers
    server_environment: dict[str, str]  # variables of the parameter servers
    destination: str | None  # folder on each host into which the directory is copied
    warm_spares: int  # spare worker processes on each host
    segment_steps: int | None  # steps between boundaries; None: only at epoch ends
    boundary: Literal["epoch", "segment"]  # where an edit of the host file takes effect
    checkpoint_dir: Path | None  # folder for commits
    events: Path | None  # file for a copy of the job's events
    state_transfer: Literal["encrypted", "clear"]  # form of the state on the network
    serving: Literal["base", "all"] = "base"  # hosts with a server; all: also hosts that join later
    dt_scripts: bool = False  # whether the script is one of AWS Dynamic Training
    tensorboard: str | None = None  # folder or S3 address for TensorBoard's curves
    resume: bool = False  # whether to continue the folder's last job
    master: str = ""  # the base host that runs the coordinator; "": the first
    destinations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # ssh's arguments, by address
    workers_per_node: int | None = 1  # None: by the host file's slots=, or one
    slots: Mapping[str, int] = field(default_factory=dict)  # workers of each host, by address


def parse(argv: Sequence[str] | None) -> LaunchPlan:
    """Parse the command line of a job on given hosts. Raises LaunchError."""
    return make_plan(_make_parser().parse_args(argv))


def is_for_cluster(argv: Sequence[str] | None, workers: str | None) -> bool:
    """Whether a launch on a cluster's node is for the cluster's own nodes, which the file `workers` lists.

    Returns False if the launch is for other hosts, or for this machine alone.
    """
    args = _make_parser().parse_args(argv)
    lists_own_nodes = args.hostfile is None or (
        workers is not None and args.hostfile.resolve() == Path(workers).resolve()
    )
    return args.launcher != "local" and lists_own_nodes


@dataclass(frozen=True)
class ClusterPlan:
    """The checked command line of a launch on a cluster's node."""

    command: tuple[str, ...]  # the training command
    environment: dict[str, str]  # variables for the workers
    dt_scripts: bool  # whether the script is one of AWS Dynamic Training


def parse_for_cluster(argv: Sequence[str] | None) -> ClusterPlan:
    """Parse the command line of a launch on a cluster's node.

    Raises LaunchError for a wrong command line, and for any option that only the cluster's configuration may set.
    """
    parser = _make_parser()
    args = parser.parse_args(argv)
    refused_options = [
        name for name, value in vars(args).items() if name not in _CLUSTER_OPTIONS and value != parser.get_default(name)
    ]
    if refused_options:
        option_names = ", ".join(f"--{name.replace('_', '-')}" for name in refused_options)
        raise LaunchError(
            f"{option_names} cannot be given on a cluster, whose configuration decides this: omit the option"
        )
    return ClusterPlan(_training_command(args), _worker_environment(args), args.dt_scripts)


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dyntrain launch",
        description="Launch a training job whose workers may join and leave.",
        epilog="example: dyntrain launch -n 2 -H hosts --launcher ssh python train.py . On a cluster's master, without "
        "-H or with -H $DEEPLEARNING_WORKERS_PATH, the job is the cluster's.",
    )
    _add_process_options(parser)
    _add_job_options(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the training command")
    return parser


def _add_process_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n", "--num-workers", type=int, help="number of base hosts, taken from the start of the host file"
    )
    parser.add_argument(
        "-s",
        "--num-servers",
        metavar="{N,all}",
        help="number of base hosts with a parameter server; default: all base hosts. With all, hosts that join later "
        "have one too, and the loss of any host restarts the workers",
    )
    parser.add_argument(
        "-H", "--hostfile", type=Path, help="one host a line; default with --launcher local: loopback addresses"
    )
    launcher_help = "ssh (the default): processes on the hosts of the host file; local: all on this machine"
    parser.add_argument("--launcher", type=_parse_launcher, default="ssh", metavar="{local,ssh}", help=launcher_help)
    parser.add_argument(
        "--workers-per-node",
        metavar="{N,slots}",
        help="worker processes on each host, such as one for each GPU; slots: the numbers of slots= in the host file, "
        "which is the default with --engine horovod; otherwise 1",
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME[:VALUE]",
        help="variable for all processes; without a value, this shell's value",
    )
    parser.add_argument("--env-server", action="append", default=[], metavar="NAME:VALUE")
    parser.add_argument("--env-worker", action="append", default=[], metavar="NAME:VALUE")
    parser.add_argument(
        "--channel",
        action="append",
        default=[],
        metavar="NAME=SOURCE",
        help="data of job.channel(NAME): s3://BUCKET/PREFIX/, or s3://BUCKET/KEY,manifest; may be repeated",
    )
    parser.add_argument(
        "--sync-dst-dir", help="first copy this directory to that path on each host, and run the job there"
    )
    parser.add_argument("--elastic-training-enabled", type=_parse_bool, default=True, metavar="{True,False}")
    parser.add_argument("--host", help="address at which the hosts reach this machine; default: the first host")


def _add_job_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue this folder's last job from its last commit, with the same command; default: a new job",
    )
    parser.add_argument(
        "--warm-spares",
        type=int,
        default=0,
        metavar="N",
        help="spare worker processes on each host; each needs a worker's memory",
    )
    parser.add_argument("--port", type=int, default=0, help="port of the coordinator; default: a free one")
    add_clock_options(parser)
    parser.add_argument(
        "--segment-steps", type=int, help="let the membership change also every so many steps within an epoch"
    )
    parser.add_argument(
        "--boundary",
        choices=["epoch", "segment"],
        default="epoch",
        help="position at which an edit of host_worker takes effect",
    )
    parser.add_argument(
        "--checkpoint-dir", type=Path, help="folder for commits, shared by all hosts; default: in this directory"
    )
    add_transfer_option(parser)
    parser.add_argument(
        "--engine",
        choices=get_args(EngineName),
        help="engine that sums the gradients: pslite (the default), on servers of the base hosts, or horovod, "
        "all-reduce among the workers; a script may choose, too",
    )
    parser.add_argument(
        "--ignore",
        default="",
        metavar="DT604,...",
        help="rules of the script's checks to ignore; `dyntrain check --explain` lists them",
    )
    parser.add_argument(
        "--checks",
        choices=MODES,
        help="checks of the script: off; warn (the default), which stops for proven errors; strict, also for warnings",
    )
    parser.add_argument(
        "--dt-scripts",
        action="store_true",
        help="run a script of AWS Dynamic Training unchanged: `import mxnet` gives it the elastic interface",
    )
    parser.add_argument("--events", type=Path, help="also write the events to this file, a JSON object a line")
    parser.add_argument(
        "--tensorboard",
        metavar="LOGDIR",
        help="folder or s3://BUCKET/PREFIX for the job's curves, in a folder of the job's name",
    )


def make_plan(args: argparse.Namespace) -> LaunchPlan:
    """Check the arguments. Raises LaunchError."""
    if args.num_workers is None:
        raise LaunchError("-n/--num-workers is missing: give the number of base hosts")
    all_hosts = _base_and_other_hosts(args.hostfile, args.num_workers, args.launcher)
    hosts = tuple(host.address for host in all_hosts[: args.num_workers])
    local_address = next((host.address for host in all_hosts if is_local_address(host.address)), None)
    if local_address is None and args.host is None and args.launcher == "ssh":
        raise LaunchError(
            f"host file {args.hostfile} does not name this machine: launch on one of its hosts, or give --host with "
            "an address of this machine that these hosts reach"
        )
    command = _training_command(args)
    for option in ("checkpoint_dir", "events", "sync_dst_dir"):
        if path_problem := not_local_problem(getattr(args, option) or ""):
            raise LaunchError(f"--{option.replace('_', '-')} {getattr(args, option)} {path_problem}")
    if (
        args.tensorboard is not None
        and not args.tensorboard.startswith("s3://")
        and not_local_problem(args.tensorboard)
    ):
        raise LaunchError(f"--tensorboard {args.tensorboard} is no folder and no s3://BUCKET/PREFIX")
    if args.warm_spares < 0:
        raise LaunchError(f"--warm-spares {args.warm_spares}: must be 0 or more")
    servers = len(hosts) if args.num_servers in (None, ALL) else _parse_server_count(args.num_servers, len(hosts))
    try:
        clocks = Clocks(args.liveness_seconds, args.progress_seconds)
    except ValueError as error:
        raise LaunchError(str(error)) from error
    if args.tensorboard is not None and find_absent(TENSORBOARD_PACKAGES):
        raise LaunchError(f"--tensorboard: {advice(TENSORBOARD_PACKAGES)}")
    if args.segment_steps is not None and args.segment_steps < 1:
        raise LaunchError(f"--segment-steps {args.segment_steps}: must be at least 1")
    if args.engine == "horovod" and args.launcher == "local" and find_absent(HOROVOD_PACKAGES):
        raise LaunchError(f"--engine horovod: {advice(HOROVOD_PACKAGES)}")
    return LaunchPlan(
        hosts=hosts,
        servers=servers,
        launcher=args.launcher,
        elastic=args.elastic_training_enabled,
        host=args.host or local_address or hosts[0],
        port=args.port,
        command=command,
        clocks=clocks,
        pause_seconds=args.pause_seconds,
        worker_environment=_worker_environment(args),
        server_environment={**_parse_assignments(args.env), **_parse_assignments(args.env_server)},
        destination=args.sync_dst_dir,
        warm_spares=args.warm_spares,
        segment_steps=args.segment_steps,
        boundary=args.boundary,
        checkpoint_dir=args.checkpoint_dir,
        events=args.events,
        state_transfer=args.state_transfer,
        serving="all" if args.num_servers == ALL else "base",
        dt_scripts=args.dt_scripts,
        tensorboard=args.tensorboard,
        resume=args.resume,
        master=local_address if local_address in hosts else hosts[0],
        destinations={host.address: host.destination for host in all_hosts},
        workers_per_node=_parse_workers_per_node(args.workers_per_node, args.engine),
        slots={host.address: host.line.slots for host in all_hosts if host.line.slots is not None},
    )


def _training_command(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the words of the training command, which may be given as one quoted string, as in MXNet's tutorial.

    Raises LaunchError.
    """
    if not args.command:
        raise LaunchError(NO_COMMAND)
    try:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        return command_words(args.command, lambda name: bool(shutil.which(name, path=path)) or Path(name).is_file())
    except Misconfigured as error:
        raise LaunchError(str(error)) from error


def _parse_server_count(option_text: str, host_count: int) -> int:
    if option_text.isascii() and option_text.isdecimal() and 1 <= int(option_text) <= host_count:
        return int(option_text)
    raise LaunchError(
        f"--num-servers {option_text}: must be {ALL}, or between 1 and the number of base hosts ({host_count})"
    )


def _parse_workers_per_node(text: str | None, engine: str | None) -> int | None:
    """Return the number of workers on each host, or None if the host file's `slots=` gives the number.

    Raises LaunchError.
    """
    if text is None:
        return None if engine == "horovod" else 1
    if text == SLOTS:
        return None
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= MOST_SLOTS:
        return int(text)
    raise LaunchError(f"--workers-per-node {text}: must be {SLOTS}, or between 1 and {MOST_SLOTS}")


def _parse_launcher(text: str) -> str:
    """Check `--launcher`: job schedulers, which dmlc's own launcher also supports, are refused."""
    if text not in ("local", "ssh"):
        raise argparse.ArgumentTypeError(
            f"{text}: elastic workers are started by ssh on the hosts of -H, or with local on this machine"
        )
    return text


def _parse_bool(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise argparse.ArgumentTypeError(f"{text!r}: True or False")
    return text.lower() in ("true", "1")


def _base_and_other_hosts(hosts_file: Path | None, workers: int, launcher: str) -> list[Host]:
    """Return all hosts of the host file without repetitions, the `workers` base hosts first. Raises LaunchError."""
    if workers < 1:
        raise LaunchError(f"--num-workers {workers}: must be at least 1")
    if hosts_file is None:
        if launcher == "ssh":
            raise LaunchError("--launcher ssh needs -H HOSTFILE")
        addresses = [f"127.0.0.{host_number}" for host_number in range(1, workers + 1)]
        return [Host(address, HostLine(line_number, address)) for line_number, address in enumerate(addresses, 1)]
    try:
        hosts = resolve_hosts(
            read_lines(hosts_file), f"host file {hosts_file}", lambda name: address_of(name, by_ssh=launcher == "ssh")
        )
        addresses = [host.address for host in hosts]
        reachable_hosts = [Host(reachable_address(host.address, addresses), host.line) for host in hosts]
    except (HostError, OSError) as error:
        raise LaunchError(str(error)) from error
    unique_hosts = list({host.address: host for host in reversed(reachable_hosts)}.values())[::-1]
    if len(unique_hosts) < workers:
        raise LaunchError(
            f"host file {hosts_file} names only {len(unique_hosts)} different hosts, but -n asks for {workers}"
        )
    return unique_hosts


def _worker_environment(args: argparse.Namespace) -> dict[str, str]:
    """Return the environment variables that the options set for the workers."""
    option_variables = {
        ENGINE: args.engine,
        CHECKS_VARIABLE: args.checks,
        IGNORE_VARIABLE: ",".join(sorted(_parse_rule_codes(args.ignore))),
    }
    nonempty_variables = {name: value for name, value in option_variables.items() if value}
    return {
        **_parse_assignments(args.env),
        **_parse_assignments(args.env_worker),
        **_channel_variables(args.channel),
        **nonempty_variables,
    }


def _parse_rule_codes(text: str) -> frozenset[str]:
    """Parse `--ignore`, a list of codes of dyntrain's check rules. Raises LaunchError."""
    try:
        return codes_in(text)
    except ValueError as error:
        raise LaunchError(f"--ignore {text}: {error}") from error


def _channel_variables(channel_options: Sequence[str]) -> dict[str, str]:
    """Return the environment variables that tell the workers the address of each channel."""
    channel_addresses = {}
    for name_and_source in channel_options:
        name, _, source = name_and_source.partition("=")
        try:
            channel_addresses[channel_variable(name)] = checked_source(source)
        except ChannelError as error:
            raise LaunchError(f"--channel {name_and_source}: {error}") from error
    return channel_addresses


def _parse_assignments(assignments: Sequence[str]) -> dict[str, str]:
    assigned_values = {}
    for assignment in assignments:
        assignment_match = re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)(?:[:=](.*))?", assignment, re.DOTALL)
        if not assignment_match:
            raise LaunchError(f"{assignment!r} is no NAME:VALUE")
        assigned_values[assignment_match[1]] = (
            os.environ.get(assignment_match[1], "") if assignment_match[2] is None else assignment_match[2]
        )
    return assigned_values
