"""The survivors' pause at a membership change, compared with stopping and restarting the same job.

A round adds a worker (2->3), exchanges it for another (swap), and removes that one (3->2), with a model-zoo network and
SGD with momentum. Joiners stand ready before they are in the target, as prepared nodes do. The pause is that of the
slowest survivor: from the last step of the old generation to the first step of the new one, less one step. `phases`
has, for each kind of change, the medians of its phases, which are consecutive and add up to the pause. `pause_seconds`
is that of 2->3.

The restart is `dyntrain launch` with two workers, SIGTERM once it has committed, and the same command again. Its time
is from SIGTERM to the first step that both workers have made, with files in the page cache.

Both times depend on the machine; the bound is on the ratio of restart to pause.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster import ENVIRONMENT, Cluster, Event, instance, mortal, resnet
from dyntrain.training.launch.command import CLUSTER
from dyntrain.training.layout import JobFolder, current_job_file
from dyntrain.training.ledger import JOURNAL, read_lines
from dyntrain.training.protocol.engines import EngineName
from figures import Figure, at_least, unbounded, write

ROUNDS = {"resnet18_v1": 5, "resnet50_v1": 3}
RESTARTS = 3
BOUND_RATIO = 8.0  # for resnet18_v1
BASE = "AB"
TO_THE_END = ("--epochs", "100000", "--steps", "8")
Changes = dict[str, list[Event]]


def main(out: Path) -> list[Figure]:
    results: dict[str, Any] = {}
    figures: list[Figure] = []
    for network, rounds in ROUNDS.items():
        with tempfile.TemporaryDirectory() as folder:
            state_mb, changes = changes_of(Path(folder), network, rounds)
        pauses = [event["seconds"] for event in changes["2->3"]]
        median = statistics.median(pauses)
        results[network] = {
            "state_mb": round(state_mb, 1),
            "pause_seconds": {"median": median, "p95": percentile(pauses, 95)},
            "phases": {change: _medians(events) for change, events in changes.items()},
        }
        figures.append(unbounded(f"{network}.pause_seconds", median))
        figures += [
            unbounded(f"{network}.{change}.{part}", seconds)
            for change, parts in results[network]["phases"].items()
            for part, seconds in parts.items()
        ]
    with tempfile.TemporaryDirectory() as folder:
        results["restart_seconds"] = statistics.median(_restarts(Path(folder), "resnet18_v1"))
    results["ratio"] = results["restart_seconds"] / results["resnet18_v1"]["pause_seconds"]["median"]
    write(out, "reform", results)
    return [
        *figures,
        unbounded("restart_seconds", results["restart_seconds"]),
        at_least("ratio", results["ratio"], BOUND_RATIO),
    ]


def percentile(values: list[float], percent: int) -> float:
    """The percentile of few values: the next value above, without interpolation."""
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def changes_of(folder: Path, network: str, rounds: int, engine: EngineName = "pslite") -> tuple[float, Changes]:
    """Measure the state's size in MB, and the pauses by kind of change."""
    changes: Changes = {"2->3": [], "swap": [], "3->2": []}
    joiners = iter(string.ascii_uppercase[len(BASE) :])
    cluster = Cluster(folder, resnet(network, *TO_THE_END), engine=engine)
    try:
        cluster.begin(BASE)
        for _ in range(rounds):
            first, second = _joiner(cluster, joiners), _joiner(cluster, joiners)
            for change, members in (("2->3", BASE + first), ("swap", BASE + second), ("3->2", BASE)):
                cluster.wait_for_segments(2)  # new processes have started, and steps are as long as usual
                before = len(cluster.events())
                cluster.want(members)
                changes[change].append(cluster.wait_for_event("pause", before))
        commits = list(cluster.job.commits.glob("*.commit"))
        return max(commit.stat().st_size for commit in commits) / 1e6, changes
    finally:
        cluster.close()


def _joiner(cluster: Cluster, letters: Iterator[str]) -> str:
    """Add a node, and wait until its worker stands ready."""
    letter, before = next(letters), len(cluster.events())
    cluster.add_node(letter)
    cluster.wait_for_event("worker_ready", before, instance=instance(letter))
    return letter


def _medians(pauses: list[Event]) -> dict[str, float]:
    parts = {
        part: statistics.median(pause["phases"].get(part, 0.0) for pause in pauses) for part in pauses[0]["phases"]
    }
    return {"pause": statistics.median(pause["seconds"] for pause in pauses), **parts}


def _restarts(folder: Path, network: str) -> list[float]:
    """Seconds of each restart: from SIGTERM to the first step of all workers of the repeated command."""
    environment = {**os.environ, **ENVIRONMENT}
    command = mortal(
        [
            sys.executable,
            "-m",
            "dyntrain.training.launch",
            "-n",
            "2",
            "--launcher",
            "local",
            *resnet(network, *TO_THE_END),
        ]
    )
    seconds: list[float] = []
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    try:
        _wait_for(folder, lambda events: _stepping(events, 0.0) and _has("commit", folder))
        for _ in range(RESTARTS):
            _wait_for(
                folder, lambda events: len([e for e in events if e["event"] == "segment"]) >= 2 * len(seconds) + 3
            )
            stopped = time.time()
            process.terminate()
            process.wait(60)
            process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
            _wait_for(folder, lambda events, since=stopped: _stepping(events, since))
            seconds.append(max(e["at"] for e in _events(folder) if e["event"] == "joined") - stopped)
        return seconds
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _job(folder: Path) -> JobFolder | None:
    current = current_job_file(folder, CLUSTER)
    return JobFolder.of(folder, CLUSTER, json.loads(current.read_text())["job"]) if current.exists() else None


def _events(folder: Path) -> list[Event]:
    job = _job(folder)
    return list(read_lines(job.events)) if job is not None and job.events.exists() else []


def _has(kind: str, folder: Path) -> bool:
    job = _job(folder)
    return job is not None and any(record["kind"] == kind for record in read_lines(job.ledger / JOURNAL))


def _stepping(events: list[Event], since: float) -> bool:
    return len({e["instance"] for e in events if e["event"] == "joined" and e["at"] > since}) == 2


def _wait_for(folder: Path, what: Any, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not what(_events(folder)):
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"the launched job in {folder} did not come so far within {seconds:.0f} s; its last events: "
                f"{_events(folder)[-8:]}"
            )
        time.sleep(0.05)
