"""The decision core alone: joins of facts, and a resync of 10,000 nodes on ports in memory; medians of processor time.

Beside each, in the same round, as many joins of plain dictionaries with as many fields: the least that such a join
could cost in Python. The bounds are on the ratios, which no machine decides.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from dyntrain.controller.core.heard.events import observe
from dyntrain.controller.core.known.facts import NodeFacts
from dyntrain.controller.loops.resync import resync
from fakes import ELASTIC, World
from figures import Figure, at_most, told, write

MERGES = 40_000
NODES = 10_000
ROUNDS = 5
MERGE_BOUND = 6.0
RESYNC_BOUND = 40.0


def main(out: Path) -> list[Figure]:
    rounds = [(_merge_seconds(), _reference_seconds(), _resync_seconds()) for _ in range(ROUNDS)]
    merge, reference, resynced = (statistics.median(column) for column in zip(*rounds, strict=True))
    found = {
        "merges_per_second": round(MERGES / merge),
        "reference_per_second": round(MERGES / reference),
        "merge_over_reference": round(merge / reference, 2),
        "resync_10000_nodes_seconds": round(resynced, 3),
        "resync_node_over_reference": round(resynced / NODES / (reference / MERGES), 1),
    }
    write(out, "core", found)
    bounds = {"merge_over_reference": MERGE_BOUND, "resync_node_over_reference": RESYNC_BOUND}
    return [
        at_most(f"core.{key}", value, bounds[key]) if key in bounds else told(f"core.{key}", value)
        for key, value in found.items()
    ]


def _reference_seconds() -> float:
    fields = list(NodeFacts.model_fields)
    news = [{name: (number, name) for name in fields} for number in range(4)]
    known = dict(news[0])
    started = time.process_time()
    for number in range(MERGES):
        new = news[number % len(news)]
        known = {name: max(known[name], new[name]) for name in fields}
    return time.process_time() - started


def _merge_seconds() -> float:
    """Tag, state and node reports of one node, joined one after the other into what is known; parsing is not
    counted.
    """
    world = World()
    instance = world.launch(1)
    events = [
        world.tag(instance),
        world.state_event(instance, "running"),
        world.tag(instance, present=False),
        world.report(instance),
    ]
    news = [facts for event in events if isinstance(facts := observe(event, ELASTIC), NodeFacts)]
    known = NodeFacts(instance=instance)
    started = time.process_time()
    for number in range(MERGES):
        known = known.join(news[number % len(news)])
    return time.process_time() - started


def _resync_seconds() -> float:
    """Every tenth node has another tag than is known; the others confirm what is."""
    world = World()
    for number in range(NODES):
        world.launch(number)
    resync(world.ports, world.registry, ELASTIC)
    for number, instance in enumerate(world.machines):
        if number % 10 == 0:
            world.machines[instance].tags["team"] = "vision"
    world.wait(60.0)
    started = time.process_time()
    done = resync(world.ports, world.registry, ELASTIC)
    assert done.complete, done
    assert done.seen == NODES, done
    return time.process_time() - started
