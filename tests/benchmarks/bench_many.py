"""Many workers: what a join, a leave, a kill and a growth from two at once cost those that stay, and what a worker
takes of memory and processor.

WORKERS="8 14" says how many; NETWORK which network (of the model zoo, or lenet); ROUNDS and KILLS how often. Servers
are on two base nodes. A change is told by its parts, which add up to the pause; a kill by the seconds from SIGKILL to
the step after which all who train have made one, and by the release within them.

How long that takes is the machine's affair, which runs all workers: bounded are ratios. BEFORE=path measures the
product of another checkout, which has its .venv, after ours; `over_before` is ours over that one's, by medians. A
worker's memory and processor are beside those of MXNet alone that trains the same share of the batch.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cluster import ENVIRONMENT, HERE
from figures import Figure, at_most, progress, told, write

CORES = os.cpu_count() or 1
FEW = CORES < 8
WORKERS = [int(each) for each in os.environ.get("WORKERS", "6" if FEW else "8 14").replace(",", " ").split()]
NETWORK = os.environ.get("NETWORK", "lenet" if FEW else "resnet18_v1")
ROUNDS, KILLS = os.environ.get("ROUNDS", "5"), os.environ.get("KILLS", "8")
BATCH, STEPS_ALONE = 48, 40
RELEASE_OVER_STEP = 3.0  # and a quarter of a second: two workers that share a core wait for each other
MEMORY_OVER_PLAIN = 1.1  # and one copy of the state


def main(out: Path) -> list[Figure]:
    figures: list[Figure] = []
    found: dict[str, Any] = {"cores": CORES, "network": NETWORK}
    before = os.environ.get("BEFORE")
    for workers in WORKERS:
        if workers > CORES:
            progress(f"{workers} workers share {CORES} cores: a step is longer than on machines of their own")
        new = _changes(workers, sys.executable)
        old = _changes(workers, str(Path(before).absolute() / ".venv" / "bin" / "python")) if before else None
        alone = _alone(-(-BATCH // workers))
        found[str(workers)] = {"new": new, "before": old, "alone": alone}
        figures += _figures(f"{workers}_workers", new, old, alone)
    write(out, "many", found)
    return figures


def _figures(name: str, new: Any, old: Any, alone: dict[str, float]) -> list[Figure]:
    values = _medians(new)
    figures = [told(f"{name}.{key}", value) for key, value in values.items()]
    if old:
        earlier = _medians(old)
        figures += [told(f"{name}.before.{key}", value) for key, value in earlier.items()]
        figures += [
            told(f"{name}.over_before.{key}", values[key] / earlier[key])
            for key in values
            if key in earlier and earlier[key] > 0
        ]
    lost = sum(new[kind][n]["fell_back"] + new[kind][n]["restarted"] for kind in LOSSES for n in range(len(new[kind])))
    bound = MEMORY_OVER_PLAIN * alone["peak_mb"] + new["state_mb"]
    return [
        *figures,
        told(f"{name}.processor_over_plain", new["cost"]["processor"] / alone["processor"]),
        at_most(f"{name}.peak_mb", new["cost"]["peak_mb"], bound),
        at_most(f"{name}.released_worst", values["kill.released_worst"], 0.25 + RELEASE_OVER_STEP * new["step"]),
        at_most(f"{name}.restarted", lost, 0),
        at_most(f"{name}.samples_lost", new["audit"]["lost"], 0),
        at_most(f"{name}.samples_doubled", new["audit"]["doubled"], 0),
    ]


LOSSES = ("kill", "two_kills", "kill_in_a_change")


def _medians(found: Any) -> dict[str, float]:
    values = {"step": found["step"]}
    for change in ("join", "leave", "growth"):
        values[f"{change}.pause"] = _median(event["seconds"] for event in found[change])
        for part in found[change][0]["phases"]:
            values[f"{change}.{part}"] = _median(event["phases"].get(part, 0.0) for event in found[change])
    for kind in LOSSES:
        values[f"{kind}.seconds"] = _median(kill["seconds"] for kill in found[kind])
        values[f"{kind}.worst"] = max(kill["seconds"] for kill in found[kind])
        values[f"{kind}.released"] = _median(kill["released"] for kill in found[kind])
        values[f"{kind}.released_worst"] = max(kill["released"] for kill in found[kind])
    return values


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def _changes(workers: int, python: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "found.json"
        command = [python, str(HERE / "many_changes.py"), str(workers), "--network", NETWORK, "--into", str(into)]
        subprocess.run([*command, "--batch", str(BATCH), "--rounds", ROUNDS, "--kills", KILLS], check=True)
        return json.loads(into.read_text(encoding="utf-8"))


def _alone(batch: int) -> dict[str, float]:
    """MXNet by itself, with a worker's share of the batch."""
    command = [sys.executable, str(HERE / "resnet_job.py"), "--network", NETWORK, "--batch-size", str(batch), "--alone"]
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run([*command, "--steps", str(STEPS_ALONE)], env=environment, check=True, stdout=subprocess.PIPE)
    alone: dict[str, float] = json.loads(done.stdout)
    return alone
