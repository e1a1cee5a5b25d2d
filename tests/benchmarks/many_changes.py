"""Runs one job of many workers through joins, leaves and losses; prints the measurements as JSON to standard output.

This is a program of its own, so that the product of another checkout can be measured in the same way, by the copy of
this program there: its arguments and the keys of its result stay as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import string
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cluster import Cluster, Event, instance, resnet
from dyntrain.training.session.job.roster import FailureBudget
from figures import peak_mb, processor_seconds, progress

BASE, SEED = "AB", 7
NAMES = string.ascii_uppercase + string.ascii_lowercase + string.digits  # each used once, like an instance's id


class Job:
    def __init__(self, folder: Path, workers: int, network: str, batch: int, servers: str) -> None:
        # workers use the checkout from which this interpreter imports
        command = resnet(network, "--epochs", "100000", "--steps", "8", "--batch-size", str(batch))
        self._names = iter(NAMES[len(BASE) :])
        self.members = BASE
        self.cluster = Cluster(
            folder,
            command,
            at_most=workers + 1,
            budget=FailureBudget(restarts=1000),
            **({"servers": servers} if servers else {}),
        )
        self._rng = random.Random(SEED)
        self.cluster.begin(BASE)

    def newcomers(self, count: int) -> str:
        """Add nodes, and wait until their workers stand ready."""
        letters, before = "", len(self.cluster.events())
        for _ in range(count):
            letter = next(self._names)
            letters += letter
            self.cluster.add_node(letter)
        for letter in letters:
            self.cluster.wait_for_event("worker_ready", before, instance=instance(letter))
        return letters

    def change(self, members: str) -> Event:
        self.cluster.wait_for_segments(2)  # new processes have started, and steps are as long as usual
        before = len(self.cluster.events())
        self.members = members
        self.cluster.want(members)
        return self.cluster.wait_for_event("pause", before)

    def kill(self, count: int = 1, within_change: bool = False) -> dict[str, Any]:
        """Kill workers at a random point of a step; seconds to the end of the step after which all have made one."""
        cluster = self.cluster
        cluster.wait_for_segments(2)
        pids = {letter: cluster.worker_pid(letter) for letter in self.members}
        victims = self._rng.sample(self.members, count)
        before = len(cluster.events())
        if within_change:
            cluster.want(self.members[:-1])
            cluster.wait_for_event("forming", before)
        else:
            time.sleep(self._rng.random())
        died = time.time()
        for victim in victims:
            pid = pids[victim]
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        at = len(cluster.events())
        cluster.wait_for_event("formed", at)
        cluster.wait_for(lambda: _stepped(cluster.events()[at:]), "the first step after a kill")
        events = cluster.events()[at:]
        results = {
            "seconds": max(e["at"] for e in events if e["event"] in ("pause", "joined")) - died,
            "released": sum(e["seconds"] for e in events if e["event"] == "released"),
            "fell_back": sum(e["event"] == "restart" for e in events),
            "restarted": sum(
                cluster.worker_pid(letter) != pid for letter, pid in pids.items() if letter not in victims
            ),
            "pause": next((e["seconds"] for e in events if e["event"] == "pause"), None),
        }
        if within_change:
            cluster.want(self.members)
        cluster.wait_for(lambda: len(cluster.events("formed")[-1]["members"]) == len(self.members), "all are back")
        return results

    def step_seconds(self, workers: int) -> float:
        return statistics.median(
            event["seconds"] / (event["to"]["step"] - event["from"]["step"])
            for event in self.cluster.events("segment")
            if event["workers"] == workers
        )

    def cost(self) -> dict[str, float]:
        """Peak memory, and processor seconds a step, of a worker that trained from the first step on."""
        pid = self.cluster.worker_pid("B")
        assert pid is not None
        first, began = self._step(), processor_seconds(pid)
        self.cluster.wait_for_segments(5)
        return {"peak_mb": peak_mb(pid), "processor": (processor_seconds(pid) - began) / (self._step() - first)}

    def _step(self) -> int:
        return int(self.cluster.events("segment")[-1]["to"]["step"])


def _stepped(events: list[Event]) -> bool:
    formed = [event["members"] for event in events if event["event"] == "formed"]
    joined = {event["instance"] for event in events if event["event"] == "joined"}
    return any(event["event"] == "pause" for event in events) or any(joined >= set(members) for members in formed)


def measured(workers: int, network: str, batch: int, rounds: int, kills: int, servers: str) -> dict[str, Any]:
    results: dict[str, Any] = {"join": [], "leave": [], "kill": [], "two_kills": [], "kill_in_a_change": []}
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), workers, network, batch, servers)
        try:
            cluster = job.cluster
            results["growth"] = [job.change(BASE + job.newcomers(workers - len(BASE)))]
            cluster.wait_for_segments(2)
            results["cost"] = job.cost()
            for number in range(rounds):
                present, newcomer = job.members, job.newcomers(1)
                results["join"].append(job.change(present + newcomer))
                results["leave"].append(job.change(present))
                progress(f"round {number + 1} of {rounds}: {results['join'][-1]['seconds']:.2f} s to join")
            for number in range(kills):
                results["kill"].append(job.kill())
                progress(f"kill {number + 1} of {kills}: {results['kill'][-1]}")
            for _ in range(-(-kills // 4)):
                results["two_kills"].append(job.kill(2))
                results["kill_in_a_change"].append(job.kill(within_change=True))
                progress(f"two at once: {results['two_kills'][-1]}; within a change: {results['kill_in_a_change'][-1]}")
            results["step"] = job.step_seconds(workers)
            commits = [commit.stat().st_size for commit in cluster.job.commits.glob("*.commit")]
            results["state_mb"] = max(commits) / 2**20
            audit = cluster.audit()
            results["audit"] = {"lost": audit.lost, "doubled": audit.doubled, "epochs": len(audit.epochs)}
        finally:
            job.cluster.close()
    return results


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("workers", type=int)
    parser.add_argument("--network", default="lenet")
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--servers", default="")
    parser.add_argument("--into", type=Path, required=True)
    given = parser.parse_args()
    results = measured(given.workers, given.network, given.batch, given.rounds, given.kills, given.servers)
    given.into.write_text(json.dumps(results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
