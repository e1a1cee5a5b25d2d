"""How long a killed worker stops the others, and how many steps it costs.

Three workers (two on base nodes) train ResNet-18 with momentum. One is killed with SIGKILL at a random point of a step:
in the forward or backward pass, in the middle of a push, or waiting for the sums. In every third kill the victim is
ahead: another worker is frozen first, so that the victim has pushed all its gradients and waits. Seconds are from the
kill to the end of the step after which all training workers have made one.

`release`: the survivors free themselves and continue; `survivors_restarted` counts processes that changed, `fell_back`
the kills that ended in a restart instead, `steps_lost_max` steps that were begun and did not count. One step is made in
any case, so the median less one step is reported too. `restart`: all start from the last commit, in fresh processes
(`cold_seconds`) or warm spares (`warm_seconds`); at most the steps of one segment are lost. `promotion_seconds` is the
spare's part: from the order to take over until it stands ready.

All these times depend on the machine, so the bounds are on ratios: of a cold restart to a bare import of MXNet, made
now and then while the others train; of a warm restart, and of a release, to the cold restart.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from cluster import Cluster, instance, resnet
from dyntrain.controller.local.pace import patient
from dyntrain.training.ledger import INTENTS, JOURNAL, read_lines
from dyntrain.training.protocol.engines import EngineName
from dyntrain.training.session.job.roster import FailureBudget
from figures import Figure, at_most, progress, unbounded, write

KILLS, SEED = 20, 5
NETWORK, STEPS = "resnet18_v1", 4  # a segment is an epoch here
COLD_OVER_IMPORT, WARM_OVER_COLD, RELEASE_OVER_COLD = 2.5, 0.6, 0.5
IMPORT = (sys.executable, "-c", "import dyntrain.training.numpy_aliases, mxnet")
IMPORT_EVERY = 4  # kills
WORKERS = "ABC"


@dataclass
class Losses:
    seconds: list[float] = field(default_factory=list)
    survivors_restarted: int = 0
    fell_back: int = 0
    steps_lost_max: int = 0
    promotions: list[float] = field(default_factory=list)
    step_seconds: float = 0.0  # with two workers, as after a kill
    imports: list[float] = field(default_factory=list)


def main(out: Path) -> list[Figure]:
    release, cold, warm = losses_of("release", 0), losses_of("restart", 0), losses_of("restart", 1)
    median = statistics.median(release.seconds)
    results: dict[str, Any] = {
        "release": {
            "median_seconds": median,
            "step_seconds": release.step_seconds,
            "worst_seconds": max(release.seconds),
            "p95_seconds": sorted(release.seconds)[len(release.seconds) * 95 // 100],
            "steps_lost_max": release.steps_lost_max,
            "survivors_restarted": release.survivors_restarted,
            "fell_back": release.fell_back,
        },
        "restart": {
            "cold_seconds": statistics.median(cold.seconds),
            "warm_seconds": statistics.median(warm.seconds),
            "import_seconds": statistics.median(cold.imports),
            "promotion_seconds": statistics.median(warm.promotions),
            "steps_lost_max": max(cold.steps_lost_max, warm.steps_lost_max),
        },
    }
    write(out, "recovery", results)
    restart = results["restart"]
    return [
        unbounded("release.median_seconds", median),
        unbounded("release.step_seconds", release.step_seconds),
        unbounded("release.median_less_a_step_seconds", median - release.step_seconds),
        unbounded("release.p95_seconds", results["release"]["p95_seconds"]),
        at_most("release.median_over_cold", median / restart["cold_seconds"], RELEASE_OVER_COLD),
        at_most("release.worst_over_cold", max(release.seconds) / restart["cold_seconds"], 1.0),
        at_most("release.steps_lost_max", release.steps_lost_max, 1),
        at_most("release.survivors_restarted", release.survivors_restarted, 0),
        at_most("release.fell_back", release.fell_back, 0),
        *(unbounded(f"restart.{name}", restart[name]) for name in ("cold_seconds", "warm_seconds", "import_seconds")),
        at_most("restart.cold_over_import", restart["cold_seconds"] / restart["import_seconds"], COLD_OVER_IMPORT),
        at_most("restart.warm_over_cold", restart["warm_seconds"] / restart["cold_seconds"], WARM_OVER_COLD),
        unbounded("restart.promotion_seconds", restart["promotion_seconds"]),
        at_most("restart.steps_lost_max", restart["steps_lost_max"], STEPS),
    ]


def losses_of(mode: Literal["release", "restart"], spares: int, engine: EngineName = "pslite") -> Losses:
    losses, rng = Losses(), random.Random(SEED)
    progress(f"{mode}, {spares} warm spares")
    with tempfile.TemporaryDirectory() as folder:
        command = resnet(NETWORK, "--epochs", "100000", "--steps", str(STEPS))
        cluster = Cluster(
            Path(folder), command, spares=spares, engine=engine, recovery=mode, budget=FailureBudget(restarts=1000)
        )
        try:
            cluster.begin("AB")
            cluster.add_node("C")
            cluster.want(WORKERS)
            cluster.wait_for_event("joined", 0, instance=instance("C"))
            for number in range(KILLS):
                _settled(cluster, spares)
                if number % IMPORT_EVERY == 0:
                    losses.imports.append(_import_seconds())
                _kill_one(cluster, rng, ahead=number % 3 == 2, losses=losses)
            losses.steps_lost_max = _steps_lost(cluster)
            losses.step_seconds = _step_of_two(cluster)
            losses.promotions = [event["seconds"] for event in cluster.events("worker_ready") if event.get("spare")]
        finally:
            cluster.close()
    return losses


def _import_seconds() -> float:
    began = time.monotonic()
    subprocess.run(IMPORT, check=True, timeout=patient(60))
    return time.monotonic() - began


def _step_of_two(cluster: Cluster) -> float:
    segments = [event for event in cluster.events("segment") if event["workers"] == len(WORKERS) - 1]
    return statistics.median(event["seconds"] / (event["to"]["step"] - event["from"]["step"]) for event in segments)


def _settled(cluster: Cluster, spares: int) -> None:
    """Wait until all three train, a commit is written, and the spares stand by, if there are any."""
    cluster.wait_for(lambda: len(cluster.events("formed")[-1]["members"]) == len(WORKERS), "all three are back")
    cluster.wait_for(lambda: cluster.spares_ready() == spares * len(WORKERS), "the spares stand by")
    cluster.wait_for_segments(1)


def _kill_one(cluster: Cluster, rng: random.Random, ahead: bool, losses: Losses) -> None:
    victim = rng.choice(WORKERS)
    pids = {letter: cluster.worker_pid(letter) for letter in WORKERS}
    before = len(cluster.events())
    time.sleep(rng.random())  # a random point in a step
    frozen = pids[rng.choice(sorted(set(WORKERS) - {victim}))] if ahead else None
    with _frozen(frozen):
        pid = pids[victim]
        assert pid is not None
        died = time.time()
        os.kill(pid, signal.SIGKILL)
    formed = cluster.wait_for_event("formed", before, "the next generation")
    members = formed["members"]
    cluster.wait_for(lambda: _stepped(cluster, before, members), "the first step of the next generation")
    losses.seconds.append(
        max(event["at"] for event in cluster.events()[before:] if event["event"] in ("joined", "pause")) - died
    )
    losses.fell_back += any(event["event"] == "restart" for event in cluster.events()[before:])
    losses.survivors_restarted += sum(
        cluster.worker_pid(letter) != pid for letter, pid in pids.items() if letter != victim
    )
    progress(f"kill {len(losses.seconds)} of {KILLS}: {victim}{' ahead' if ahead else ''}, {losses.seconds[-1]:.2f} s")


@contextlib.contextmanager
def _frozen(pid: int | None) -> Iterator[None]:
    """Freeze the process during the block, so that the others get ahead of it."""
    if pid is None:
        yield
        return
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(0.5)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _stepped(cluster: Cluster, before: int, members: list[str]) -> bool:
    """Whether all members have made a step: survivors are reported by one pause, new processes by joining."""
    events = cluster.events()[before:]
    joined = {event["instance"] for event in events if event["event"] == "joined"}
    return any(event["event"] == "pause" for event in events) or joined >= set(members)


def _steps_lost(cluster: Cluster) -> int:
    """The most steps that a generation had begun beyond the position where the next one began."""
    starts = [
        (r["number"], r["position"]["step"])
        for r in read_lines(cluster.job.ledger / JOURNAL)
        if r["kind"] == "generation"
    ]
    begun: dict[int, int] = {}
    for file in cluster.job.ledger.glob(f"*{INTENTS}"):
        for intent in read_lines(file):
            begun[intent["g"]] = max(begun.get(intent["g"], -1), intent["s"])
    lost: int = max(begun.get(number, -1) + 1 - start for (number, _), (_, start) in pairwise(starts))
    return lost
