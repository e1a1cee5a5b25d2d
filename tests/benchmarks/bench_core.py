"""The decision core alone: joins of facts, and a resync of 10,000 nodes on ports in memory; medians."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from fakes import SUFFIX, World
from figures import Figure, at_least, at_most, write

from controller.events import observe
from controller.facts import NodeFacts
from controller.resync import resync

MERGES = 40_000
NODES = 10_000
ROUNDS = 3


def main(out: Path) -> list[Figure]:
    merges = round(statistics.median(_merges_per_second() for _ in range(ROUNDS)))
    resynced = round(statistics.median(_resync_seconds() for _ in range(ROUNDS)), 3)
    write(out, "core", {"merges_per_second": merges, "resync_10000_nodes_seconds": resynced})
    return [at_least("core.merges_per_second", merges, 20_000), at_most("core.resync_10000_nodes_seconds", resynced, 2.0)]


def _merges_per_second() -> float:
    """Tag, state and node reports of one node, joined one after the other into what is known; parsing is not counted."""
    world = World()
    instance = world.launch(1)
    events = [world.tag(instance), world.state_event(instance, "running"), world.tag(instance, present=False), world.report(instance)]
    news = [facts for event in events if isinstance(facts := observe(event, SUFFIX), NodeFacts)]
    known = NodeFacts(instance=instance)
    started = time.perf_counter()
    for number in range(MERGES):
        known = known.join(news[number % len(news)])
    return MERGES / (time.perf_counter() - started)


def _resync_seconds() -> float:
    """Every tenth node has another tag than is known; the others confirm what is."""
    world = World(max_workers=NODES + 1)
    for number in range(NODES):
        world.launch(number)
    resync(world.ports, world.registry, SUFFIX)
    for number, instance in enumerate(world.machines):
        if number % 10 == 0:
            world.machines[instance].tags["team"] = "vision"
    world.wait(60.0)
    started = time.perf_counter()
    done = resync(world.ports, world.registry, SUFFIX)
    assert done.complete, done
    assert done.seen == NODES, done
    return time.perf_counter() - started
