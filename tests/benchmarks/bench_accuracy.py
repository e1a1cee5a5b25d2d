"""The effect of elasticity on a model: accuracy and weights of elastic jobs compared with static ones.

With a fixed global batch, LeNet on digits and a small ResNet on synthetic data like CIFAR-10 are trained by one worker,
by four, and by 2->4->1->3. LeNet, in its smooth form, has no BatchNorm and no choice between pixels, so only the order
of summation differs, and the weights must agree. The ResNet normalises over each worker's share of a batch, so its
weights depend on the number of workers, even in a static job.

With a batch per worker, LeNet with ReLU and max pooling, which is more sensitive to a sudden change, goes from one
worker to four after two epochs: once with the new rate at once and unchanged momentum (`plain`), and once with a ramp
of the rate and momentum scaled with it (`compensated`), three seeds each. `peak` is the highest epoch loss after the
change, divided by the loss of the epoch before it.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_job import RESULT, WEIGHTS
from cluster import HERE, Cluster, instance
from dyntrain.training.examples.cifar10_data import generate
from figures import Figure, at_least, at_most, progress, unbounded, write

EPOCHS = 8
SEEDS = (1, 2, 3)
BOUND_DIFFERENCE, BOUND_ACCURACY = 1e-3, 0.02  # for LeNet, elastic against static
CHANGES = {1: "ABCD", 3: "A", 5: "ABC"}  # at the end of these epochs, from AB


@dataclass
class Job:
    """The results of a job."""

    accuracy: float
    weights: list[Any]
    losses: list[float]
    exact: bool
    members: list[int] = field(default_factory=list)


def main(out: Path) -> list[Figure]:
    results: dict[str, Any] = {}
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), 400, 200)
        for name, options in (
            ("digits", ("--batch", "60", "--rate", "0.05")),
            ("cifar_like", ("--batch", "40", "--rate", "0.05", "--data", folder)),
        ):
            results[name], more = _fixed(name, options)
            figures += more
    results["per_worker"], more = _per_worker()
    write(out, "accuracy", results)
    return [*figures, *more]


def _fixed(name: str, options: tuple[str, ...]) -> tuple[dict[str, Any], list[Figure]]:
    jobs = {
        "static_1": train(options, "A", {}),
        "static_4": train(options, "ABCD", {}),
        "elastic": train(options, "AB", CHANGES),
    }
    reference = jobs["static_1"]
    results: dict[str, Any] = {
        kind: {
            "accuracy": job.accuracy,
            "max_weight_difference": _difference(job, reference),
            "exact": job.exact,
            "workers": job.members,
        }
        for kind, job in jobs.items()
    }
    difference, gap = results["elastic"]["max_weight_difference"], abs(jobs["elastic"].accuracy - reference.accuracy)
    lines = [unbounded(f"{name}.{kind}.accuracy", job.accuracy) for kind, job in jobs.items()]
    lines.append(at_least(f"{name}.exact", float(all(job.exact for job in jobs.values())), 1.0))
    if name == "digits":
        return results, [
            *lines,
            at_most(f"{name}.max_weight_difference", difference, BOUND_DIFFERENCE),
            at_most(f"{name}.gap", gap, BOUND_ACCURACY),
        ]
    return results, [*lines, unbounded(f"{name}.max_weight_difference", difference)]


def _difference(job: Job, other: Job) -> float:
    return max(float(np.abs(mine - theirs).max()) for mine, theirs in zip(job.weights, other.weights, strict=True))


def _per_worker() -> tuple[dict[str, Any], list[Figure]]:
    results: dict[str, Any] = {}
    for kind in ("compensated", "plain"):
        runs = []
        for seed in SEEDS:
            options = (
                "--batch",
                "32",
                "--rate",
                "0.05",
                "--per-worker",
                "--seed",
                str(seed),
                *(["--compensated"] if kind == "compensated" else []),
            )
            job = train(options, "A", {1: "ABCD"})
            runs.append(
                {
                    "seed": seed,
                    "accuracy": job.accuracy,
                    "losses": job.losses,
                    "peak": max(job.losses[2:]) / job.losses[1],
                    "exact": job.exact,
                }
            )
        results[kind] = runs
    figures = []
    for kind, runs in results.items():
        figures += [
            unbounded(f"per_worker.{kind}.{what}", statistics.mean(run[what] for run in runs))
            for what in ("accuracy", "peak")
        ]
    figures.append(
        at_least("per_worker.exact", float(all(run["exact"] for runs in results.values() for run in runs)), 1.0)
    )
    return results, [
        *figures,
        at_most("per_worker.compensated.worst_peak", max(run["peak"] for run in results["compensated"]), 3.0),
    ]


def train(options: tuple[str, ...], base: str, changes: dict[int, str]) -> Job:
    """Run a job to its end, with membership `changes` at the ends of the given epochs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for epoch in changes:
            (folder / f"stop-{epoch}").touch()
        command = [sys.executable, str(HERE / "accuracy_job.py"), "--folder", name, "--epochs", str(EPOCHS), *options]
        servers = base[:2]
        cluster = Cluster(folder, command, workers=len(base))
        try:
            for letter in base:
                cluster.add_node(letter, base=letter in servers)
            _prepare(cluster, base, set())
            here = set(base)
            for epoch, letters in changes.items():
                _prepare(cluster, letters, here)
                here = set(letters)
                (folder / f"stop-{epoch}").unlink()
                count = len(letters)
                cluster.wait_for(
                    lambda count=count: _formed(cluster) and _formed(cluster)[-1] == count, f"{letters} train"
                )
            cluster.finished()
            losses = [event["metrics"]["loss"] for event in cluster.events("segment")]
            with np.load(folder / WEIGHTS) as weights:
                kept = [weights[key] for key in weights.files]
            progress(
                f"{' '.join(options)} from {base}: workers {_formed(cluster)}, losses "
                f"{' '.join(f'{loss:.3f}' for loss in losses)}"
            )
            return Job(
                json.loads((folder / RESULT).read_text())["accuracy"],
                kept,
                losses,
                cluster.audit().exact,
                _formed(cluster),
            )
        finally:
            cluster.close()


def _formed(cluster: Cluster) -> list[int]:
    return [len(event["members"]) for event in cluster.events("formed")]


def _prepare(cluster: Cluster, letters: str, here: set[str]) -> None:
    """Wait until joiners and ps-lite processes are ready, and the coordinator has read the target.

    At the job's start the target is set last, as otherwise the job would start without late nodes.
    """
    if here:
        cluster.wait_for(lambda: cluster.events("joined"), "the first generation")
    after = len(cluster.events())
    for letter in letters:
        if letter not in here and letter not in cluster.nodes:
            cluster.add_node(letter)
    if here:
        cluster.want(letters)
    for letter in letters:
        if letter not in here:
            cluster.wait_for_event("worker_ready", after if here else 0, instance=instance(letter))
    cluster.wait_for(cluster.groups_ready, "blank ps-lite processes")
    if not here:
        cluster.want(letters)
    cluster.wait_for(cluster.obeyed, "the coordinator reads the target")
