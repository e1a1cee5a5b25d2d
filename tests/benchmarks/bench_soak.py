"""Finds leaks of one job over 60 membership changes and 20 kills; there must be none.

A round adds C, kills the worker of B or C in the middle of its steps (the others free themselves), waits until it is
back, and removes C. A's worker is never killed and takes part in every change. Before the first counted round and after
the last one, in the same state of the cluster (two workers, all blanks and spares ready), these are counted: threads
and descriptors of A's worker and of the process that runs coordinator and nodes; processes and listening sockets of
everything that was started. An increase is a leak.

The memory of A's worker is read after each round. A straight line is fitted to the later half of the readings, when
pools and caches have reached their size. `memory` is the increase of the line over the whole soak, in MB; it is noise
and counts as 0 below 2 MB or three standard errors of the slope. Lost or doubled samples are those that the audit finds
in all finished epochs.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from cluster import HERE, Cluster, instance
from dyntrain.training.session.job.roster import FailureBudget
from figures import Figure, at_least, at_most, progress, write

ROUNDS, SEED = 20, 11
WARM_UP = "BC"  # killed once each, as a promoted spare keeps its connection to the node, and a started worker has none
CHANGES, KILLS = 60, 20
NOISE_MB = 2.0
SPARES = 1
Counts = dict[str, int]


def main(out: Path) -> list[Figure]:
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hold = folder / "hold"
        hold.touch()
        script = [
            sys.executable,
            str(HERE.parent / "training" / "tiny_job.py"),
            "--epochs",
            "1000000",
            "--hold",
            str(hold),
            "--step-seconds",
            "0.02",
        ]
        cluster = Cluster(folder, script, spares=SPARES, budget=FailureBudget(restarts=1000))
        try:
            cluster.begin("AB")
            cluster.add_node("C")
            for letter in WARM_UP:
                _round(cluster, rng, letter)
            survivor = cluster.worker_pid("A")
            assert survivor is not None
            before, changes = _counts(cluster, survivor), len(cluster.events("forming"))
            opened = _opened(survivor)
            memory = [_memory_mb(survivor)]
            for number in range(ROUNDS):
                _round(cluster, rng, rng.choice("BC"))
                memory.append(_memory_mb(survivor))
                progress(f"round {number + 1} of {ROUNDS}: {memory[-1]:.0f} MB")
            after, changes = _counts(cluster, survivor), len(cluster.events("forming")) - changes
            if after["descriptors"] > before["descriptors"]:
                progress(f"opened meanwhile: {dict(_opened(survivor) - opened)}")
            same = cluster.worker_pid("A") == survivor
            audit = cluster.audit()
        finally:
            cluster.close()
    leaked = {what: max(0, after[what] - before[what]) for what in before} | {"memory_mb": leaked_mb(memory)}
    results: dict[str, Any] = {
        "changes": changes,
        "kills": ROUNDS,
        "leaked": leaked,
        "samples_lost": audit.lost,
        "samples_doubled": audit.doubled,
        "epochs_audited": len(audit.epochs),
        "survivor_restarted": int(not same),
    }
    write(out, "soak", results)
    return [
        at_least("changes", changes, CHANGES),
        at_least("kills", ROUNDS, KILLS),
        *(at_most(f"leaked.{what}", count, 0) for what, count in leaked.items()),
        at_most("samples_lost", audit.lost, 0),
        at_most("samples_doubled", audit.doubled, 0),
        at_least("epochs_audited", len(audit.epochs), 1),
        at_most("survivor_restarted", results["survivor_restarted"], 0),
    ]


def leaked_mb(readings: list[float]) -> float:
    """The increase in MB of a line fitted to the later half of the readings, over all readings; 0 if it is noise."""
    later = np.asarray(readings[len(readings) // 2 :])
    steps = np.arange(len(later))
    slope, offset = np.polyfit(steps, later, 1)
    residuals = later - (slope * steps + offset)
    error = float(np.sqrt((residuals**2).sum() / (len(later) - 2) / ((steps - steps.mean()) ** 2).sum()))
    gained = float(slope) * len(readings)
    return 0.0 if gained < NOISE_MB or slope < 3 * error else gained


def _round(cluster: Cluster, rng: random.Random, victim: str) -> None:
    before = len(cluster.events())
    cluster.want("ABC")
    cluster.wait_for_event("joined", before, instance=instance("C"))
    cluster.wait_for_segments(1)
    pid = cluster.worker_pid(victim)
    assert pid is not None
    before = len(cluster.events())
    time.sleep(rng.random() * 0.3)
    os.kill(pid, signal.SIGKILL)
    # A spare that is ready before the others have formed is in their next generation, else in the one after.
    cluster.wait_for(
        lambda: any(e["event"] == "formed" and len(e["members"]) == 3 for e in cluster.events()[before:]),
        f"{victim} is back",
    )
    cluster.wait_for_segments(1)
    before = len(cluster.events())
    cluster.want("AB")
    cluster.wait_for_event("left", before, instance=instance("C"))
    cluster.wait_for_event("pause", before)
    cluster.wait_for_segments(1)


def _counts(cluster: Cluster, survivor: int) -> Counts:
    """Count once the spares are ready again and two counts in a row are equal.

    Each count is the minimum of several looks, as commits run threads for a moment.
    """
    deadline, last = time.monotonic() + 120.0, Counts()
    while time.monotonic() < deadline:
        looks = [_look(survivor) for _ in range(10)]
        counts = {what: min(look[what] for look in looks) for what in looks[0]}
        if counts == last and cluster.spares_ready() == 2 * SPARES:
            return counts
        last = counts
    raise TimeoutError(f"the cluster does not come to rest: {last}")


def _look(survivor: int) -> Counts:
    time.sleep(0.2)
    started = _descendants(os.getpid())
    # without the event loop's thread pool, which may grow at any time
    own = sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate())
    return {
        "threads": len(list(Path(f"/proc/{survivor}/task").iterdir())) + own,
        "descriptors": sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in (survivor, os.getpid())),
        "processes": len(started),
        "ports": sum(_listening(pid) for pid in [os.getpid(), *started]),
    }


def _opened(survivor: int) -> Counter[str]:
    """The kinds of open descriptors in the counted processes, with their numbers."""
    counts: Counter[str] = Counter()
    sockets = _sockets()
    for pid in (survivor, os.getpid()):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed just now
                target = os.readlink(descriptor)
                name = sockets.get(target, target.split("[")[0])
                counts[f"{'worker' if pid == survivor else 'cluster'} {name}"] += 1
    return counts


def _sockets() -> dict[str, str]:
    """Describe each socket of this machine, by its name in a process's list of descriptors."""
    tcp = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    unix = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    names = {f"socket:[{fields[9]}]": f"tcp from {fields[1]} to {fields[2]} in state {fields[3]}" for fields in tcp}
    return names | {f"socket:[{fields[6]}]": f"unix of type {fields[4]} in state {fields[5]}" for fields in unix}


def _descendants(pid: int) -> list[int]:
    pids: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            children = [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # that thread has ended
        for child in children:
            pids += [child, *_descendants(child)] if Path(f"/proc/{child}").exists() else []
    return pids


def _listening(pid: int) -> int:
    """TCP sockets of the process in state LISTEN (0A)."""
    listening = {
        line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"
    }
    count = 0
    with contextlib.suppress(FileNotFoundError):  # the process has ended
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed just now
                target = os.readlink(descriptor)
                count += target.startswith("socket:[") and target[8:-1] in listening
    return count


def _memory_mb(pid: int) -> float:
    """Resident memory in MB, without file-backed and shared pages."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1024
