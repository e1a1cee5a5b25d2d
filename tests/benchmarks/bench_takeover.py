"""Clusters of 10 to 1,000 nodes without a coordinator for five minutes, on a simulated clock.

Measured are the requests to Parameter Store (which answers 40 a second to a whole account), and how long after its
publication each node has found the next coordinator.
"""

from __future__ import annotations

import logging
import statistics
from pathlib import Path

from figures import Figure, at_most, unbounded, write
from lost_coordinator import simulate

SIZES = (10, 100, 1000)
BASE_NODES = 4
MOST_A_SECOND = 10


def main(out: Path) -> list[Figure]:
    logging.disable()  # the nodes' log messages
    results: dict[str, float] = {}
    for nodes in SIZES:
        lost = simulate(nodes, base=BASE_NODES)
        waits = [at - lost.lasting for at in lost.connections]
        results[f"requests_per_second_{nodes}"] = round(lost.a_second, 2)
        results[f"busiest_second_{nodes}"] = lost.busiest
        results[f"found_median_seconds_{nodes}"] = round(statistics.median(waits), 1)
        results[f"found_last_seconds_{nodes}"] = round(max(waits), 1)
    write(out, "takeover", results)
    return [
        at_most(f"takeover.{key}", value, MOST_A_SECOND)
        if key.startswith(("requests", "busiest"))
        else unbounded(f"takeover.{key}", value)
        for key, value in results.items()
    ]
