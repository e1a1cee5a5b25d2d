"""What elasticity costs while nothing changes: the elastic loop over a plain `dist_sync` loop of the same network, data, batch and servers.

Two workers and two servers each; 128 images of 32x32 in a step, the batch that residual networks are trained with on CIFAR-10. All three jobs are up
for the whole run and take short turns, so that what the machine does besides meets all of them alike. The plain loop is the faster one of
`update_on_kvstore` True and False.

`elastic_over_plain` is that of an epoch: the median over the pairs of neighbouring turns, where the turns with an epoch's end (boundary, statistics,
commit of the whole state) have their own median and weigh as one turn of an epoch.
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
from collections.abc import Iterator
from pathlib import Path

from cluster import ENVIRONMENT, HERE, Cluster, mortal
from figures import Figure, at_most, progress, told, write
from overhead_job import TURN, VARIANTS

NETWORK, BATCH, STEPS, TURN_STEPS, EPOCHS = "resnet18_v1", 128, 24, 4, 10
TURNS = STEPS // TURN_STEPS  # in an epoch
WORKERS = SERVERS = 2
BOUND = 1.03
IMPORT_MXNET = "import training.numpy_aliases, mxnet"  # with a role in the environment it serves, and ends with the workers


def main(out: Path) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        seconds = _turns(Path(name))
    medians = {variant: statistics.median(values) for variant, values in seconds.items()}
    plain = min(VARIANTS[1:], key=lambda variant: medians[variant])
    ratios = [mine / theirs for mine, theirs in zip(seconds["elastic"], seconds[plain], strict=True)]
    boundary, inner = statistics.median(ratios[TURNS - 1 :: TURNS]), statistics.median(r for i, r in enumerate(ratios) if (i + 1) % TURNS)
    ratio = (inner * (TURNS - 1) + boundary) / TURNS
    steps = {variant: median / TURN_STEPS for variant, median in medians.items()}
    write(out, "overhead", {"elastic_over_plain": ratio, "within_epoch": inner, "turn_with_boundary": boundary, "step_seconds": steps})
    return [
        at_most("elastic_over_plain", ratio, BOUND),
        told("within_epoch", inner),
        told("turn_with_boundary", boundary),
        *(told(f"{variant}.step_seconds", value) for variant, value in steps.items()),
    ]


def _turns(folder: Path) -> dict[str, list[float]]:
    """Seconds of each variant's turns, whole epochs of them: the first turn, half a one, and the rest of that epoch warm up."""
    turn = folder / TURN
    turn.write_text("nobody 0")
    cluster = Cluster(folder, _command(folder, "elastic"), WORKERS)
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.close)
        for letter in "AB":
            cluster.add_node(letter, base=True)
        cluster.want("AB")
        for variant in VARIANTS[1:]:
            stack.enter_context(_plain_job(folder, variant))
        cluster.wait_for_event("formed", 0)
        for number in range(1, 1 + TURNS * (EPOCHS + 1) + 1):
            for variant in VARIANTS:
                partial = folder / "turn.new"
                partial.write_text(f"{variant} {number}")
                partial.rename(turn)
                _wait_for(folder, variant, number)
            if number % TURNS == 1:
                progress(f"epoch {number // TURNS} of {EPOCHS}")
        return {variant: [entry["seconds"] for entry in _results(folder, variant)][1 + TURNS :] for variant in VARIANTS}


def _command(folder: Path, variant: str) -> list[str]:
    script = [sys.executable, str(HERE / "overhead_job.py"), "--variant", variant, "--folder", str(folder), "--network", NETWORK]
    return [*script, "--batch-size", str(BATCH), "--steps", str(STEPS), "--turn-steps", str(TURN_STEPS)]


@contextlib.contextmanager
def _plain_job(folder: Path, variant: str) -> Iterator[None]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, **ENVIRONMENT, "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port)}
    environment |= {"DMLC_NUM_WORKER": str(WORKERS), "DMLC_NUM_SERVER": str(SERVERS)}
    roles = ["scheduler", *["server"] * SERVERS, *["worker"] * WORKERS]
    with (folder / f"{variant}.log").open("wb") as log:
        processes = [
            subprocess.Popen(
                mortal(_command(folder, variant) if role == "worker" else [sys.executable, "-c", IMPORT_MXNET]),
                env={**environment, "DMLC_ROLE": role},
                stdout=log,
                stderr=log,
            )
            for role in roles
        ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait(10)


def _results(folder: Path, variant: str) -> list[dict[str, float]]:
    file = folder / f"{variant}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _wait_for(folder: Path, variant: str, number: int, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while len(_results(folder, variant)) < number:
        if time.monotonic() > deadline:
            raise TimeoutError(f"turn {number} of {variant} took longer than {seconds:.0f} s")
        time.sleep(0.01)
