"""Many workers: the survivors' cost of a join, a leave, a kill and a growth from two at once, and a worker's resources.

WORKERS="8 14" sets the numbers of workers, NETWORK the network (of the model zoo, or lenet), ROUNDS and KILLS the
repetitions. Servers are on two base nodes. A change is reported by its phases, which add up to the pause; a kill by the
seconds from SIGKILL to the end of the step after which all training workers have made one, and by the release in them.

These times depend on the machine, which runs all workers, so the bounds are on ratios. BEFORE=path also measures the
product of another checkout that has its .venv: TURNS of each, in turns, so that other load on the machine affects both;
`over_before` is our median divided by the other's. PEER=1 runs the same training with torchrun over gloo
(`peer_changes`). ALL=1 runs servers on all members, and compares a step with the prediction of `dyntrain model`, made
from a step with servers on the base nodes. A worker's memory and processor time are compared with those of MXNet alone
that trains the same share of the batch.
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

import peer_changes
from cluster import ENVIRONMENT, HERE
from dyntrain.training.model.dealing import deal
from figures import Figure, at_most, progress, unbounded, write

PROGRAM = Path("tests/benchmarks/many_changes.py")
ROOT = HERE.parents[1]
CORES = os.cpu_count() or 1
FEW = CORES < 8
WORKERS = [int(each) for each in os.environ.get("WORKERS", "6" if FEW else "8 14").replace(",", " ").split()]
NETWORK = os.environ.get("NETWORK", "lenet" if FEW else "resnet18_v1")
ROUNDS, KILLS = int(os.environ.get("ROUNDS", "6")), int(os.environ.get("KILLS", "8"))
TURNS = int(os.environ.get("TURNS", "2"))
BATCH, STEPS_ALONE, BASES, PEER_ROUNDS = 48, 40, 2, 2
RELEASE_OVER_STEP = 3.0  # plus a quarter of a second, as two workers that share a core wait for each other
MEMORY_OVER_PLAIN = 1.1  # plus one copy of the state


def main(out: Path) -> list[Figure]:
    figures: list[Figure] = []
    results: dict[str, Any] = {"cores": CORES, "network": NETWORK}
    before = os.environ.get("BEFORE")
    for workers in WORKERS:
        if workers > CORES:
            progress(f"{workers} workers share {CORES} cores: a step is longer than on machines of their own")
        new, old = _by_turns(workers, before)
        alone = _alone(-(-BATCH // workers))
        name = f"{workers}_workers"
        results[str(workers)] = {"new": new, "before": old, "alone": alone}
        figures += _figures(name, new, old, alone)
        if os.environ.get("ALL"):
            results[str(workers)]["all"] = everywhere = _changes(workers, ROOT, 1, 0, "all")
            figures += _everywhere(name, workers, new, everywhere, alone)
        if os.environ.get("PEER") and (python := peer_changes.installed()) is not None:
            results[str(workers)]["peer"] = peer = peer_changes.measured(python, workers, NETWORK, BATCH, PEER_ROUNDS)
            figures += _peer(name, new, peer)
    write(out, "many", results)
    return figures


def _by_turns(workers: int, before: str | None) -> tuple[Any, Any]:
    """Measure this product and the one before, in turns."""
    turns = TURNS if before else 1
    roots = [ROOT, *([Path(before).absolute()] if before else [])]
    each: list[list[Any]] = [[] for _ in roots]
    for turn in range(turns):
        for which, root in enumerate(roots):
            progress(f"turn {turn + 1} of {turns}: {root}")
            each[which].append(_changes(workers, root, -(-ROUNDS // turns), -(-KILLS // turns)))
    merged = [_merged(runs) for runs in each]
    return merged[0], merged[1] if before else None


def _merged(runs: list[Any]) -> Any:
    """Merge several runs into one."""
    first = runs[0]
    return {
        **{
            name: [each for run in runs for each in run[name]]
            for name, value in first.items()
            if isinstance(value, list)
        },
        "step": _median(run["step"] for run in runs),
        "cost": {name: _median(run["cost"][name] for run in runs) for name in first["cost"]},
        "audit": {name: sum(run["audit"][name] for run in runs) for name in first["audit"]},
        "state_mb": first["state_mb"],
    }


def _everywhere(name: str, workers: int, new: Any, everywhere: Any, alone: dict[str, Any]) -> list[Figure]:
    """The figures with servers on all members.

    The predicted exchange is in proportion to the bytes on the fullest server.
    """
    values = _medians(everywhere)
    compute = min(alone["seconds"] * max(1.0, workers / CORES), new["step"])
    base, every = (deal(_keys(alone), servers).max_server_bytes for servers in (BASES, workers))
    return [
        *(unbounded(f"{name}.servers_all.{key}", value) for key, value in values.items()),
        unbounded(f"{name}.servers_all.step_over_base", everywhere["step"] / new["step"]),
        unbounded(f"{name}.servers_all.step_predicted", compute + (new["step"] - compute) * every / base),
    ]


def _keys(alone: dict[str, Any]) -> list[tuple[str, tuple[int, ...], str]]:
    return [(str(number), tuple(shape), "float32") for number, shape in enumerate(alone["shapes"])]


def _peer(name: str, new: Any, peer: Any) -> list[Figure]:
    ours = _medians(new)
    pairs = {"join": "join.pause", "leave": "leave.pause", "kill": "kill.seconds"}
    pairs = {kind: key for kind, key in pairs.items() if key in ours}
    theirs = {kind: _median(peer[kind]) for kind in pairs}
    return [
        unbounded(f"{name}.peer.step", peer["step"]),
        *(unbounded(f"{name}.peer.{kind}", value) for kind, value in theirs.items()),
        *(unbounded(f"{name}.peer.{kind}_over_ours", value / ours[pairs[kind]]) for kind, value in theirs.items()),
    ]


def _figures(name: str, new: Any, old: Any, alone: dict[str, Any]) -> list[Figure]:
    values = _medians(new)
    figures = [unbounded(f"{name}.{key}", value) for key, value in values.items()]
    if old:
        earlier = _medians(old)
        figures += [unbounded(f"{name}.before.{key}", value) for key, value in earlier.items()]
        figures += [
            unbounded(f"{name}.over_before.{key}", values[key] / earlier[key])
            for key in values
            if key in earlier and earlier[key] > 0
        ]
    lost = sum(new[kind][n]["fell_back"] + new[kind][n]["restarted"] for kind in LOSSES for n in range(len(new[kind])))
    bound = MEMORY_OVER_PLAIN * alone["peak_mb"] + new["state_mb"]
    return [
        *figures,
        unbounded(f"{name}.processor_over_plain", new["cost"]["processor"] / alone["processor"]),
        at_most(f"{name}.peak_mb", new["cost"]["peak_mb"], bound),
        *(
            at_most(f"{name}.{key}", values[key], 0.25 + RELEASE_OVER_STEP * new["step"])
            for key in ["kill.released_worst"]
            if key in values
        ),
        at_most(f"{name}.restarted", lost, 0),
        at_most(f"{name}.samples_lost", new["audit"]["lost"], 0),
        at_most(f"{name}.samples_doubled", new["audit"]["doubled"], 0),
    ]


LOSSES = ("kill", "two_kills", "kill_in_a_change")


def _medians(results: Any) -> dict[str, float]:
    values = {"step": results["step"]}
    for change in [change for change in ("join", "leave", "growth") if results[change]]:
        values[f"{change}.pause"] = _median(event["seconds"] for event in results[change])
        for part in results[change][0]["phases"]:
            values[f"{change}.{part}"] = _median(event["phases"].get(part, 0.0) for event in results[change])
    for kind in [kind for kind in LOSSES if results[kind]]:
        values[f"{kind}.seconds"] = _median(kill["seconds"] for kill in results[kind])
        values[f"{kind}.worst"] = max(kill["seconds"] for kill in results[kind])
        values[f"{kind}.released"] = _median(kill["released"] for kill in results[kind])
        values[f"{kind}.released_worst"] = max(kill["released"] for kill in results[kind])
    return values


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def _changes(workers: int, root: Path, rounds: int, kills: int, servers: str = "") -> Any:
    """Run `many_changes.py` of the checkout `root`, whose names in the product it uses."""
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "results.json"
        program = [sys.executable if root == ROOT else str(root / ".venv/bin/python"), str(root / PROGRAM)]
        command = [*program, str(workers), "--network", NETWORK, "--into", str(into)]
        command += ["--batch", str(BATCH), "--rounds", str(rounds), "--kills", str(kills)]
        subprocess.run([*command, *(["--servers", servers] if servers else [])], check=True)
        return json.loads(into.read_text(encoding="utf-8"))


def _alone(batch: int) -> dict[str, Any]:
    """Run MXNet by itself, with a worker's share of the batch."""
    command = [sys.executable, str(HERE / "resnet_job.py"), "--network", NETWORK, "--batch-size", str(batch), "--alone"]
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run([*command, "--steps", str(STEPS_ALONE)], env=environment, check=True, stdout=subprocess.PIPE)
    alone: dict[str, Any] = json.loads(done.stdout)
    return alone
