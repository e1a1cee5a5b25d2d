"""ps-lite compared with Horovod under the elastic loop: the cost of a change, of a killed worker, and of the loop.

The loop's cost is compared with plain Horovod. Needs `make horovod`. The network is ResNet-18. Pauses are those of
`reform`, as medians of its rounds; `killed` is that of `recovery`, from the kill to the end of the step after which all
training workers have made one, so it includes one step. `elastic_over_plain` is measured as in `overhead`, against
Horovod's own `DistributedTrainer`, with two workers and 128 images of 64x64 in a step.

`links` are the seconds of an exchange of ResNet-50's gradients (102 MB) among 2, 4 and 8 workers on hosts with links
limited to 1 Gb/s, through the servers of two base nodes and by all-reduce, without computation. That part needs root,
`ip` and `tc`.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import get_args

from bench_overhead import TURN_STEPS, ratio_of_epoch, turns_of
from bench_recovery import losses_of
from bench_reform import changes_of
from dyntrain.missing import require
from dyntrain.training.model.networks import resnet50
from dyntrain.training.protocol.engines import EngineName
from figures import Figure, at_most, progress, unbounded, write
from model_group import Groups
from namespaces import hosts
from overhead_job import ALL_REDUCE

NETWORK, ROUNDS = "resnet18_v1", 3
IMAGE, EPOCHS, BOUND = 64, 3, 1.03
ON_LINKS, BASES, MEGABITS, TIMES = (2, 4, 8), 2, 1000.0, 3


def main(out: Path) -> list[Figure]:
    require(("horovod",))
    figures: list[Figure] = []
    for engine in get_args(EngineName):
        progress(engine)
        with tempfile.TemporaryDirectory() as folder:
            _, changes = changes_of(Path(folder), NETWORK, ROUNDS, engine)
        for change, events in changes.items():
            figures.append(unbounded(f"{engine}.{change}", statistics.median(event["seconds"] for event in events)))
        create = statistics.median(event["phases"]["create"] for event in changes["2->3"])
        figures.append(unbounded(f"{engine}.2->3.create", create))
        losses = losses_of("release", 0, engine)
        figures += [
            unbounded(f"{engine}.killed", statistics.median(losses.seconds)),
            unbounded(f"{engine}.killed_worst", max(losses.seconds)),
            at_most(f"{engine}.killed.steps_lost_max", losses.steps_lost_max, 1),
            at_most(f"{engine}.killed.survivors_restarted", losses.survivors_restarted, 0),
        ]
    figures += links()
    with tempfile.TemporaryDirectory() as folder:
        jobs = turns_of(Path(folder), IMAGE, ALL_REDUCE, "horovod", EPOCHS)
    elastic, plain = (jobs[variant] for variant in ALL_REDUCE)
    figures += [
        at_most("horovod.elastic_over_plain", ratio_of_epoch(elastic, plain)[0], BOUND),
        unbounded("horovod.plain_step_seconds", statistics.median(plain.seconds) / TURN_STEPS),
    ]
    write(out, "engines", {figure.name: figure.value for figure in figures})
    return figures


def links() -> list[Figure]:
    figures = []
    with hosts(max(ON_LINKS), MEGABITS) as here:
        for engine in get_args(EngineName):
            groups = Groups(here, max(ON_LINKS), engine)
            try:
                for workers in ON_LINKS:
                    groups.form(resnet50(), workers, BASES)
                    groups.exchange(workers, 1)
                    seconds = statistics.median(groups.exchange(workers, TIMES))
                    groups.leave(workers)
                    progress(f"{engine}, {workers} workers: {seconds:.2f} s")
                    figures.append(unbounded(f"{engine}.links.{workers}_workers", seconds))
            finally:
                groups.close()
    return figures
