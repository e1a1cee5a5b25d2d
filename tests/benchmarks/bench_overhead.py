"""What elasticity costs while nothing changes: the elastic loop over a plain `dist_sync` loop of the same network,
data, batch and servers.

Once with the checks of its script and once without (`checks="off"`). Two workers and two servers each, ResNet-18, 128
images in a step: of 64x64, as in Tiny ImageNet, and (`small_images`) of 32x32, where the network has so many parameters
for so little to compute that a tenth of a step is the update itself. All four jobs are up for the whole run and take
short turns, so that what the machine does besides meets all of them alike. The plain loop is the faster one of
`update_on_kvstore` True and False. With True the servers update once what the elastic loop updates on each worker;
where workers and servers share the processors, as here, that is the difference.

`elastic_over_plain`, and `unchecked_over_plain`, is that of an epoch of 24 steps: the median over the pairs of
neighbouring turns, where the turns with an epoch's end (boundary, statistics, commit of the whole state) have their own
median and weigh as one turn of an epoch.
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
from pathlib import Path

from cluster import ENVIRONMENT, HERE, Cluster, mortal
from dyntrain.training.protocol.engines import EngineName
from figures import Figure, at_most, progress, told, write
from overhead_job import ALL_REDUCE, VARIANTS, word_to

NETWORK, BATCH, STEPS, TURN_STEPS = "resnet18_v1", 128, 24, 4
EPOCHS = {64: 4, 32: 8}  # that are measured, by the images' size in pixels
TURNS = STEPS // TURN_STEPS  # in an epoch
WORKERS = SERVERS = 2
BOUNDS = {"elastic_over_plain": 1.015, "unchecked_over_plain": 1.005}
# with a role in the environment it serves, and ends with the workers
IMPORT_MXNET = "import dyntrain.training.numpy_aliases, mxnet"
RENDEZVOUS = "import os; from dyntrain.training.engine.rendezvous import serve_rendezvous; serve_rendezvous(os.environ)"


def main(out: Path) -> list[Figure]:
    found, small = (_measured(image) for image in EPOCHS)
    write(out, "overhead", {**found, "small_images": small})
    figures = [
        *(at_most(name, found.pop(name), bound) for name, bound in BOUNDS.items()),
        *(told(*figure) for figure in found.items()),
    ]
    return [*figures, *(told(f"small_images.{name}", value) for name, value in small.items())]


def _measured(image: int) -> dict[str, float]:
    progress(f"images of {image}x{image}")
    with tempfile.TemporaryDirectory() as name:
        seconds = turns_of(Path(name), image, VARIANTS)
    medians = {variant: statistics.median(values) for variant, values in seconds.items()}
    plain = min(VARIANTS[2:], key=lambda variant: medians[variant])
    found = {}
    for name, variant in zip(BOUNDS, VARIANTS, strict=False):
        ratios = [mine / theirs for mine, theirs in zip(seconds[variant], seconds[plain], strict=True)]
        boundary = statistics.median(ratios[TURNS - 1 :: TURNS])
        inner = statistics.median(r for i, r in enumerate(ratios) if (i + 1) % TURNS)
        found[name] = (inner * (TURNS - 1) + boundary) / TURNS
        found |= {f"{variant}_within_epoch": inner, f"{variant}_turn_with_boundary": boundary}
    return found | {f"{variant}_step_seconds": median / TURN_STEPS for variant, median in medians.items()}


def turns_of(
    folder: Path, image: int, variants: Sequence[str], engine: EngineName = "pslite", epochs: int = 0
) -> dict[str, list[float]]:
    """Seconds of each variant's turns, whole epochs of them: the first turn, half a one, and the rest of that epoch
    warm up. The elastic variants are on `engine`.
    """
    epochs = epochs or EPOCHS[image]
    for variant in variants:
        for rank in range(WORKERS):
            os.mkfifo(folder / f"{variant}-{rank}")
    with contextlib.ExitStack() as stack:
        for variant, letters in zip(variants, ("AB", "CD", "", ""), strict=False):
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
        for number in range(1, 1 + TURNS * (epochs + 1) + 1):
            for variant in variants:
                for word in words[variant]:
                    word.write(b"go\n")
                _wait_for(folder, variant, number)
            if number % TURNS == 1:
                progress(f"epoch {number // TURNS} of {epochs}")
        return {variant: [entry["seconds"] for entry in _results(folder, variant)][1 + TURNS :] for variant in variants}


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
    """As horovodrun would say it."""
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
