r"""The coordinator's command line.

Exit code 0 means that the job is over; the job's report says whether the job finished or failed. Exit code 75 means
that another node has taken the job over (`terms`). Exit code 78 means that a user must act, as the log says. After any
other exit code, start the coordinator again: the coordinator continues the job where the journal ends. Example:

    python -m dyntrain.training.coordinator --cluster demo --instance-id i-... --host 10.0.0.5 --mount /myEFSvolume \
        --num-workers 2
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from dyntrain.controller.contract.instance_identity import Keys, parse_keys
from dyntrain.controller.contract.messages import IDENTITY_VARIABLE, MOST_WORKERS, S3_LOCATION, SignedDocument
from dyntrain.training.coordinator.current_job import commits_below, open_job
from dyntrain.training.coordinator.hosts import AwsHosts
from dyntrain.training.coordinator.server import Coordinator
from dyntrain.training.coordinator.terms import Overtaken
from dyntrain.training.layout import JobFolder, current_job_file
from dyntrain.training.protocol.clocks import Clocks
from dyntrain.training.records import Unreadable
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import PAUSE_SECONDS, Options

TEMPORARY_FAILURE, PERSON_NEEDED = 75, 78  # exit codes of sysexits.h
log = logging.getLogger("coordinator")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the coordinator and return its exit code."""
    args = parse(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(_serve(args))
    except (asyncio.CancelledError, KeyboardInterrupt):
        return 128 + signal.SIGTERM
    except Overtaken as error:
        log.warning("%s; this coordinator ends", error)
        return TEMPORARY_FAILURE
    except Unreadable as error:
        log.error("%s", error)
        return PERSON_NEEDED
    return 0


async def _serve(args: argparse.Namespace) -> None:
    """Run the coordinator until the job has ended.

    Raises Overtaken if another node holds the job, and Unreadable for files of an unknown format.
    """
    job, started_at = open_job(args.mount, args.cluster, time.time())
    options = Options(
        cluster=args.cluster,
        job=job,
        started_at=started_at,
        limits=Limits(args.min_workers, args.max_workers),
        workers=args.num_workers,
        waits=args.waits_for_launch,
        segment_steps=args.segment_steps,
        boundary=args.boundary,
        state_transfer=args.state_transfer,
        servers=args.servers,
        checkpoint_dir=commits_below(args.checkpoint_dir, args.cluster, job),
        clocks=args.clocks,
        pause_seconds=args.pause_seconds,
    )
    identity_document = os.environ.pop(IDENTITY_VARIABLE, "")
    coordinator = Coordinator(
        options,
        JobFolder.of(args.mount, args.cluster, job),
        AwsHosts(args.cluster, args.stage),
        args.host,
        args.instance_id,
        keys=args.identity_keys,
        term=args.term,
        events=args.events,
        identity=SignedDocument.model_validate_json(identity_document) if identity_document else None,
        mirror=current_job_file(args.mount, args.cluster).parent,
        uploads=_make_upload_command(
            args.output_location, JobFolder.of(args.mount, args.cluster, job), options.checkpoint_dir
        ),
    )
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await coordinator.run()


def _make_upload_command(location: str | None, folder: JobFolder, commits: str | None) -> list[str] | None:
    if location is None:
        return None
    commits_option = [] if commits is None else ["--commits", commits]
    return [sys.executable, "-m", "dyntrain.training.report.uploads", str(folder.root), location, *commits_option]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line's options, and add the time limits derived from them as `clocks`.

    If an option is wrong, the process exits with a message.
    """
    parser = argparse.ArgumentParser(
        prog="python -m dyntrain.training.coordinator", description="Coordinates the training job of one cluster."
    )
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--stage", help="stage of the cluster's controller; default: that of the only controller")
    parser.add_argument("--instance-id", required=True)
    parser.add_argument("--host", required=True, help="this node's private address, where nodes and workers connect")
    parser.add_argument("--mount", required=True, type=Path, help="the volume that all nodes share")
    parser.add_argument("--num-workers", type=int, default=1, help="workers that the first generation waits for")
    parser.add_argument("--min-workers", type=int, default=1)
    parser.add_argument("--max-workers", type=int, default=64)
    parser.add_argument(
        "--term", type=int, default=0, help="term of this node's nomination, from the target; 0: tagged as master"
    )
    parser.add_argument("--segment-steps", type=int, help="also let membership change every so many steps in mid-epoch")
    parser.add_argument(
        "--boundary", choices=["epoch", "segment"], default="epoch", help="where changes without a deadline are made"
    )
    parser.add_argument(
        "--waits-for-launch", action="store_true", help="wait until a person launches a command on a base node"
    )
    add_transfer_option(parser)
    parser.add_argument(
        "--servers", choices=["base", "all"], default="base", help="which members' ps-lite servers are used"
    )
    parser.add_argument("--events", type=Path, help="write the job's events to this file too, a JSON object a line")
    parser.add_argument(
        "--checkpoint-dir",
        type=Path,
        help="where commits are kept, on a volume that all nodes share; default: on the mount",
    )
    parser.add_argument(
        "--output-location",
        type=_parse_s3_location,
        help="s3://BUCKET/PREFIX: commits, output/ and TensorBoard's curves are uploaded there when an epoch ends",
    )
    keys_help = (
        "public keys (PEM, or its body) whose signature on an instance identity document counts; "
        "without any key, nodes are trusted"
    )
    parser.add_argument("--identity-keys", type=_parse_identity_keys, default=(), help=keys_help)
    add_clock_options(parser)
    args = parser.parse_args(argv)
    if not args.mount.is_dir():
        parser.error(f"--mount {args.mount} is not a directory")
    if args.max_workers > MOST_WORKERS:
        parser.error(f"--max-workers {args.max_workers}: must be at most {MOST_WORKERS}")
    try:
        args.clocks = Clocks(args.liveness_seconds, args.progress_seconds)
    except ValueError as error:
        parser.error(str(error))
    return args


def _parse_s3_location(text: str) -> str:
    if not re.match(S3_LOCATION, text):
        raise argparse.ArgumentTypeError(f"{text} is no s3://BUCKET or s3://BUCKET/PREFIX")
    return text


def _parse_identity_keys(text: str) -> Keys:
    try:
        return parse_keys(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_transfer_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state-transfer",
        choices=["encrypted", "clear"],
        default="encrypted",
        help="how the state goes from node to node; clear saves processor time, for a network without other users",
    )


def add_clock_options(parser: argparse.ArgumentParser) -> None:
    """Add the options from which all time limits of a job are derived, and whose values `Clocks` checks."""
    default_clocks = Clocks()
    option_group = parser.add_argument_group("bounds of every wait, in seconds")
    option_group.add_argument(
        "--liveness-seconds",
        type=float,
        default=default_clocks.liveness,
        help=(
            "a process that does not answer for so long counts as hung; the intervals of pings and reconnections "
            "follow from it"
        ),
    )
    option_group.add_argument(
        "--progress-seconds",
        type=float,
        default=default_clocks.progress,
        help=(
            "a live job without a step for so long, or a worker without a connection after its start, counts as stuck"
        ),
    )
    option_group.add_argument(
        "--pause-seconds",
        type=float,
        default=PAUSE_SECONDS,
        help="a job below its minimum of workers fails after so long",
    )
