"""The decision core alone: joins of facts, and a resync of 10,000 nodes with in-memory ports, in processor time.

The reference, run before and after each measurement, joins as many plain dictionaries with as many fields, of as many
nodes: the minimum that such joins can cost in Python. It walks through as much memory, because otherwise another
process that occupies the caches would slow only the measurement. The bounds are on the medians of the ratios, which do
not depend on the machine.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from dyntrain.controller.core.incoming.events import observe
from dyntrain.controller.core.records.facts import NodeFacts
from dyntrain.controller.loops.resync import resync
from fakes import ELASTIC, World
from figures import Figure, at_most, unbounded, write

MERGES = 40_000
NODES = 10_000
ROUNDS = 5
MERGE_BOUND = 6.0
RESYNC_BOUND = 40.0


def main(out: Path) -> list[Figure]:
    merges, resyncs = zip(*((_paired(_merges()), _paired(_resync())) for _ in range(ROUNDS)), strict=True)
    merge, reference = map(statistics.median, zip(*merges, strict=True))
    resynced = statistics.median(seconds for seconds, _reference in resyncs)
    results = {
        "merges_per_second": round(MERGES / merge),
        "reference_per_second": round(MERGES / reference),
        "merge_over_reference": round(statistics.median(seconds / beside for seconds, beside in merges), 2),
        "resync_10000_nodes_seconds": round(resynced, 3),
        "resync_node_over_reference": round(
            statistics.median(seconds / NODES / (beside / MERGES) for seconds, beside in resyncs), 1
        ),
    }
    write(out, "core", results)
    bounds = {"merge_over_reference": MERGE_BOUND, "resync_node_over_reference": RESYNC_BOUND}
    return [
        at_most(f"core.{key}", value, bounds[key]) if key in bounds else unbounded(f"core.{key}", value)
        for key, value in results.items()
    ]


def _paired(measured: Callable[[], None]) -> tuple[float, float]:
    """Processor seconds of `measured`, and the mean of those of the reference before and after it."""
    reference = _reference()
    gc.collect()  # garbage of earlier rounds
    gc.freeze()  # collecting the objects that stand for AWS is not the controller's work
    before, seconds, after = (_seconds(part) for part in (reference, measured, reference))
    gc.unfreeze()
    return seconds, (before + after) / 2


def _seconds(part: Callable[[], None]) -> float:
    started = time.process_time()
    part()
    return time.process_time() - started


def _reference() -> Callable[[], None]:
    fields = list(NodeFacts.model_fields)
    news = [{name: (number, name) for name in fields} for number in range(4)]
    nodes = [dict(news[0]) for _ in range(NODES)]

    def joined() -> None:
        for number in range(MERGES):
            known, new = nodes[number % NODES], news[number // NODES % len(news)]
            nodes[number % NODES] = {name: max(known[name], new[name]) for name in fields}

    return joined


def _merges() -> Callable[[], None]:
    """Join tag, state and node reports one after another into a node's facts; parsing is not measured."""
    world = World()
    instance = world.launch(1)
    events = [
        world.tag(instance),
        world.state_event(instance, "running"),
        world.tag(instance, present=False),
        world.report(instance),
    ]
    news = [facts for event in events if isinstance(facts := observe(event, ELASTIC), NodeFacts)]
    nodes = [NodeFacts(instance=instance) for _ in range(NODES)]

    def joined() -> None:
        for number in range(MERGES):
            nodes[number % NODES] = nodes[number % NODES].join(news[number // NODES % len(news)])

    return joined


def _resync() -> Callable[[], None]:
    """Resync nodes, of which every tenth has a changed tag; the others are as known."""
    world = World()
    for number in range(NODES):
        world.launch(number)
    resync(world.ports, world.registry, ELASTIC)
    for number, instance in enumerate(world.machines):
        if number % 10 == 0:
            world.machines[instance].tags["team"] = "vision"
    world.wait(60.0)

    def done() -> None:
        done = resync(world.ports, world.registry, ELASTIC)
        assert done.complete, done
        assert done.seen == NODES, done

    return done
