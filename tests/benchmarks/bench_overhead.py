"""The cost of elasticity without membership changes: the elastic loop compared with a plain `dist_sync` loop.

Both have the same network, data, batch and servers. The elastic loop runs once with the checks of its script and once
without (`checks="off"`). Each job has two workers and two servers and trains ResNet-18 on 128 images a step: of 64x64,
as in Tiny ImageNet, and (`small_images`) of 32x32, where the many parameters and the little computation make the update
itself a tenth of a step. All four jobs run for the whole time and take short turns, so that other load on the machine
affects all equally. The plain loop is the faster one of `update_on_kvstore` True and False. With True, the servers make
the update once that the elastic loop makes on each worker, which is the difference if workers and servers share the
processors, as here.

`elastic_over_plain` and `elastic_unchecked_over_plain` are for an epoch of 24 steps: the median over pairs of
neighbouring turns, where the turns with an epoch's end (boundary, statistics, commit of the whole state) have their own
median and count as one turn of an epoch. `elastic_processor_over_plain` compares processor seconds of workers and
servers together: as the jobs keep all processors busy, these determine the time, and they are valid on a busy machine
too.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster import ENVIRONMENT, HERE, Cluster, mortal
from dyntrain.training.protocol.engines import EngineName
from figures import Figure, at_most, processor_seconds, progress, unbounded, write
from overhead_job import ALL_REDUCE, VARIANTS, word_to

NETWORK, BATCH, STEPS, TURN_STEPS = "resnet18_v1", 128, 24, 4
EPOCHS = {64: 4, 32: 8}  # measured ones, by the images' size in pixels
TURNS = STEPS // TURN_STEPS  # in an epoch
WORKERS = SERVERS = 2
BOUNDS = {"elastic": 1.015, "elastic_unchecked": 1.005}
VARIANT = "DYNTRAIN_BENCH_VARIANT"  # in the environment of every process of a job
# with a ps-lite role in its environment, this import runs as a server and ends with the workers
IMPORT_MXNET = "import dyntrain.training.numpy_aliases, mxnet"
RENDEZVOUS = "import os; from dyntrain.training.engine.rendezvous import serve_rendezvous; serve_rendezvous(os.environ)"


def main(out: Path) -> list[Figure]:
    large, small = (_measured(image) for image in EPOCHS)
    write(out, "overhead", {**large, "small_images": small})
    bounds = {f"{variant}{of}_over_plain": bound for variant, bound in BOUNDS.items() for of in ("", "_processor")}
    figures = [
        at_most(name, value, bounds[name]) if name in bounds else unbounded(name, value)
        for name, value in large.items()
    ]
    return [*figures, *(unbounded(f"small_images.{name}", value) for name, value in small.items())]


def _measured(image: int) -> dict[str, float]:
    progress(f"images of {image}x{image}")
    with tempfile.TemporaryDirectory() as folder:
        jobs = turns_of(Path(folder), image, VARIANTS)
    medians = {variant: statistics.median(job.seconds) for variant, job in jobs.items()}
    plain = jobs[min(VARIANTS[2:], key=lambda variant: medians[variant])]
    least = min(jobs[variant].processor for variant in VARIANTS[2:])
    figures = {}
    for variant in BOUNDS:
        over, inner, boundary = ratio_of_epoch(jobs[variant], plain)
        figures |= {f"{variant}_over_plain": over, f"{variant}_processor_over_plain": jobs[variant].processor / least}
        figures |= {f"{variant}_within_epoch": inner, f"{variant}_turn_with_boundary": boundary}
    return figures | {f"{variant}_step_seconds": median / TURN_STEPS for variant, median in medians.items()}


@dataclass(frozen=True)
class Job:
    """The seconds of each measured turn, and the processor seconds of all turns."""

    seconds: list[float]
    processor: float


def ratio_of_epoch(job: Job, plain: Job) -> tuple[float, float, float]:
    """The ratios for an epoch, a turn within one, and the turn with its end: medians over pairs of turns."""
    ratios = [mine / theirs for mine, theirs in zip(job.seconds, plain.seconds, strict=True)]
    boundary = statistics.median(ratios[TURNS - 1 :: TURNS])
    inner = statistics.median(ratio for number, ratio in enumerate(ratios) if (number + 1) % TURNS)
    return (inner * (TURNS - 1) + boundary) / TURNS, inner, boundary


def turns_of(
    folder: Path, image: int, variants: Sequence[str], engine: EngineName = "pslite", epochs: int = 0
) -> dict[str, Job]:
    """Measure each variant's turns, in whole epochs. The elastic variants use `engine`.

    The first turn, which is half as long, and the rest of that epoch are a warm-up.
    """
    epochs = epochs or EPOCHS[image]
    for variant in variants:
        for rank in range(WORKERS):
            os.mkfifo(folder / f"{variant}-{rank}")
    with contextlib.ExitStack() as stack:
        for variant, letters in zip(variants, ("AB", "CD", "", ""), strict=False):
            os.environ[VARIANT] = variant
            if not variant.startswith("elastic"):
                stack.enter_context(_plain_job(folder, variant, image))
                continue
            (folder / variant).mkdir()
            cluster = Cluster(folder / variant, _command(folder, variant, image), WORKERS, engine=engine)
            stack.callback(cluster.close)
            for letter in letters:
                cluster.add_node(letter, base=True)
            cluster.want(letters)
            cluster.wait_for_event("formed", 0)
        words = {
            variant: [stack.enter_context(word_to(folder, variant, rank)) for rank in range(WORKERS)]
            for variant in variants
        }
        warm = 1 + TURNS
        before: dict[str, float] = {}
        for number in range(1, warm + TURNS * epochs + 1):
            if number == warm + 1:
                before = {variant: _processor_of(variant) for variant in variants}
            for variant in variants:
                for word in words[variant]:
                    word.write(b"go\n")
                _wait_for(folder, variant, number)
            if number % TURNS == 1:
                progress(f"epoch {number // TURNS} of {epochs}")
        return {
            variant: Job(
                [entry["seconds"] for entry in _results(folder, variant)][warm:],
                _processor_of(variant) - before[variant],
            )
            for variant in variants
        }


def _processor_of(variant: str) -> float:
    """Processor seconds so far of the variant's processes that have not ended."""
    seconds, mark = 0.0, f"{VARIANT}={variant}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process ended, or is another user's
            if int(process.name) != os.getpid() and mark in (process / "environ").read_bytes().split(b"\0"):
                seconds += processor_seconds(int(process.name))
    return seconds


def _command(folder: Path, variant: str, image: int) -> list[str]:
    script = [
        sys.executable,
        str(HERE / "overhead_job.py"),
        "--variant",
        variant,
        "--folder",
        str(folder),
        "--network",
        NETWORK,
    ]
    return [
        *script,
        "--image",
        str(image),
        "--batch-size",
        str(BATCH),
        "--steps",
        str(STEPS),
        "--turn-steps",
        str(TURN_STEPS),
    ]


@contextlib.contextmanager
def _plain_job(folder: Path, variant: str, image: int) -> Iterator[None]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, **ENVIRONMENT, "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port)}
    environment |= {"DMLC_NUM_WORKER": str(WORKERS), "DMLC_NUM_SERVER": str(SERVERS)}
    roles = ["scheduler", *["server"] * SERVERS, *["worker"] * WORKERS]
    own = [{"DMLC_ROLE": role} for role in roles]
    commands = [
        _command(folder, variant, image) if role == "worker" else [sys.executable, "-c", IMPORT_MXNET] for role in roles
    ]
    if variant == ALL_REDUCE[1]:
        environment |= {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port)}
        own = [{}, *(_rank(rank) for rank in range(WORKERS))]
        commands = [[sys.executable, "-c", RENDEZVOUS], *[_command(folder, variant, image)] * WORKERS]
    with (folder / f"{variant}.log").open("wb") as log:
        processes = [
            subprocess.Popen(mortal(command), env={**environment, **mine}, stdout=log, stderr=log)
            for command, mine in zip(commands, own, strict=True)
        ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait(10)


def _rank(rank: int) -> dict[str, str]:
    """Horovod's environment for a rank, as horovodrun would set it."""
    numbers = {
        "RANK": rank,
        "SIZE": WORKERS,
        "LOCAL_RANK": rank,
        "LOCAL_SIZE": WORKERS,
        "CROSS_RANK": 0,
        "CROSS_SIZE": 1,
    }
    settings = {"CONTROLLER": "gloo", "CPU_OPERATIONS": "gloo", "GLOO_IFACE": "lo", "HOSTNAME": "localhost"}
    return {f"HOROVOD_{name}": str(value) for name, value in (numbers | settings).items()}


def _results(folder: Path, variant: str) -> list[dict[str, float]]:
    file = folder / f"{variant}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _wait_for(folder: Path, variant: str, number: int, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while len(_results(folder, variant)) < number:
        if time.monotonic() > deadline:
            raise TimeoutError(f"turn {number} of {variant} took longer than {seconds:.0f} s")
        time.sleep(0.05)
