"""`python -m dyntrain.training.feed --channel NAME=SOURCE ... -- COMMAND`: runs a program whose data is in S3."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from dyntrain.training.feed.channels import FILE, PIPE, ROOT, Channel, channels_of
from dyntrain.training.feed.configuration import write_channel_configuration
from dyntrain.training.feed.copying import copy_channel
from dyntrain.training.feed.crc import library_crc
from dyntrain.training.feed.dealing import too_many_channels_warning
from dyntrain.training.feed.guardian import Guardian
from dyntrain.training.feed.keeper import FifoKeeper
from dyntrain.training.feed.opened import die_with_parent
from dyntrain.training.feed.places import ChannelError

WAIT_SECONDS = 0.2  # longest wait for events before the program's state is checked again
KILL_AFTER_SECONDS = 20.0  # between SIGTERM and SIGKILL
S3_SETTINGS = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 2})


def make_s3_client(region: str | None) -> Any:
    make_client: Any = boto3.session.Session(
        region_name=region
    ).client  # the client's type has an overload for every AWS service
    return make_client("s3", config=S3_SETTINGS)


def say(text: str) -> None:
    print(f"feed: {text}", file=sys.stderr, flush=True)  # noqa: T201


def main(argv: Sequence[str] | None = None) -> int:
    """Run the user's command and return its exit code. If a channel cannot be read, print the reason and return 1."""
    args = _parser().parse_args(argv)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    try:
        channels = channels_of(args.channel)
        rank_count, ranks_here = local_ranks(os.environ, args.workers_per_node)
        return run(Path(args.root), channels, rank_count, ranks_here, command, partial(make_s3_client, args.region))
    except ChannelError as error:
        say(str(error))
        return 1


def local_ranks(environment: Mapping[str, str], workers: int) -> tuple[int, range]:
    """Return the number of ranks in the whole job, and the numbers of the ranks on this machine.

    Raises ChannelError.
    """
    try:
        node_count, node_rank = int(environment.get("NUM_NODES", "1")), int(environment.get("NODE_RANK", "0"))
    except ValueError as error:
        raise ChannelError(f"NUM_NODES and NODE_RANK must be whole numbers: {error}") from error
    return node_count * workers, range(node_rank * workers, (node_rank + 1) * workers)


def run(  # the user's command
    root: Path,
    channels: Sequence[Channel],
    ranks: int,
    ranks_here: range,
    command: Sequence[str],
    connect: Callable[[], Any],
) -> int:
    """Run `command` with the data of the channels and return its exit code. Raises ChannelError."""
    root = root.absolute()
    if warning := too_many_channels_warning(sum(channel.mode == PIPE for channel in channels)):
        say(warning)
    if library_crc() is None:
        say("google-crc32c is missing (add it to requirements.txt): of TFRecords only the lengths are checked")
    write_channel_configuration(root, channels, ranks)
    for channel in channels:
        if channel.mode == FILE:
            copy_channel(connect(), channel, root / channel.name, say)
    return _run_program(
        FifoKeeper(root, channels, ranks, ranks_here, say, connect), command, _program_environment(root, channels)
    )


def _run_program(keeper: FifoKeeper, command: Sequence[str], environment: Mapping[str, str]) -> int:
    program = _start_program(command, environment)
    guardian = Guardian(program.pid)
    keeper.group = guardian.group
    try:
        return _run_to_end(keeper, program)
    finally:
        keeper.close()
        guardian.dismiss()


def _run_to_end(keeper: FifoKeeper, program: subprocess.Popen[bytes]) -> int:
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda sig, _: _signal_group(program, sig))
    while (exit_code := program.poll()) is None and not keeper.problem:
        keeper.handle_events(WAIT_SECONDS)
    deadline = time.monotonic() + KILL_AFTER_SECONDS
    while exit_code and keeper.is_listing and not keeper.problem and time.monotonic() < deadline:
        keeper.handle_events(WAIT_SECONDS)  # the program may have failed because of a channel that is not listed yet
    if not keeper.problem:
        return exit_code if exit_code is not None and exit_code >= 0 else 128 - (exit_code or 0)
    _signal_group(
        program, signal.SIGTERM
    )  # the program's readers still block on their FIFOs, so they have not seen a false end of data
    deadline = time.monotonic() + KILL_AFTER_SECONDS
    while program.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    _signal_group(program, signal.SIGKILL)
    program.wait()
    say(keeper.problem)
    return 1


def _start_program(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the user's command in a new process session. Raises ChannelError."""
    parent_pid = os.getpid()
    try:
        return subprocess.Popen(
            list(command), env=dict(environment), start_new_session=True, preexec_fn=lambda: die_with_parent(parent_pid)
        )
    except (OSError, IndexError) as error:
        raise ChannelError(f"the command cannot be started: {error}") from error


def _signal_group(program: subprocess.Popen[bytes], signal_number: int) -> None:
    """Send a signal to the program's whole process group."""
    try:
        os.killpg(program.pid, signal_number)
    except ProcessLookupError:
        return


def _program_environment(root: Path, channels: Sequence[Channel]) -> dict[str, str]:
    """Return the program's environment, with each channel's path and each channel's address in S3.

    SM_CHANNEL_NAME is the channel's path, as on SageMaker. DYNTRAIN_CHANNEL_NAME is the channel's address in S3, which
    `job.channel` uses.
    """
    variable_names = {channel: channel.name.upper().replace("-", "_") for channel in channels}
    return {
        **os.environ,
        **{f"SM_CHANNEL_{name}": str(root / channel.name) for channel, name in variable_names.items()},
        **{f"DYNTRAIN_CHANNEL_{name}": channel.source for channel, name in variable_names.items()},
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dyntrain.training.feed",
        description="Run a program that reads channels of S3, as FIFOs ROOT/NAME_EPOCH or as folders ROOT/NAME.",
    )
    parser.add_argument(
        "--channel",
        action="append",
        default=[],
        metavar="NAME=SOURCE[,shuffle=SEED][,mode=file][,format=FORMAT]",
        help="s3://BUCKET/PREFIX/ or s3://BUCKET/KEY,manifest; may be repeated",
    )
    parser.add_argument("--root", default=ROOT, help=f"folder of the FIFOs and folders; default: {ROOT}")
    parser.add_argument(
        "--workers-per-node",
        type=int,
        default=1,
        metavar="N",
        help="ranks on each machine; channel NAME is also divided among all ranks",
    )
    parser.add_argument("--region", help="region for calls to S3; default: the AWS CLI's region")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="after --")
    return parser
