"""The model of `dyntrain model` compared with real ps-lite groups, formed by the engine's own functions.

The hosts' links are limited to 200 Mb/s, so that the links and not the cores are the limit. There is no computation;
ResNet-50's keys are exchanged at a quarter of their size.

One placement, three workers and one server, calibrates the links and the latency. The others are predicted from that
and then measured: exchanges, ps-lite's init, the release after a crash, the state transfer to joiners, and a step whose
gradients arrive one after another. Bytes on the busiest link are counted too; they follow from how keys are dealt, on
any machine. Needs root, `ip` and `tc`.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from bench_fanout import transfer
from dyntrain.training.engine.store import split
from dyntrain.training.model.dealing import ServerLoad, deal
from dyntrain.training.model.networks import Key, resnet50
from dyntrain.training.model.prediction import (
    Machines,
    init_seconds,
    predict_exchange,
    predict_release,
    state_seconds,
    step_seconds,
)
from figures import Figure, at_most, processor_seconds, progress, unbounded, write
from model_group import Groups
from namespaces import Hosts, hosts

MEGABITS = 200.0
NOMINAL = MEGABITS * 1e6 / 8
KEYS: list[Key] = [(f"{part.key}.{part.start}", (max(1, part.length // 4),), "float32") for part in split(resnet50())]
NOTHING: list[Key] = [(name, (1,), "float32") for name, _, _ in KEYS[:8]]
CALIBRATED = (3, 1)  # workers, servers
PREDICTED = ((2, 1), (2, 2), (3, 2), (3, 3), (4, 1), (4, 2), (4, 4))
RELEASES = ((4, 2), (3, 1))  # each kills a worker, the last one
RECEIVERS = (1, 3)
STATE = 32_000_000
TIMES = 5


def serving(groups: Groups) -> float:
    """Bytes that a server adds up in one second of a core, over the loopback, so that no link limits it."""
    groups.form(KEYS, 1, 1)
    groups.exchange(1, 1)
    before = processor_seconds(groups.first_server)
    groups.exchange(1, 4 * TIMES)
    taken = processor_seconds(groups.first_server) - before
    groups.leave(1)
    return deal(KEYS, 1).total_bytes * 4 * TIMES / taken


def calibrate(groups: Groups) -> Machines:
    workers, servers = CALIBRATED
    added = serving(groups)
    forming = statistics.median(each["create"] for each in groups.form(NOTHING, workers, servers))
    latency = statistics.median(groups.exchange(workers, 4 * TIMES))
    groups.leave(workers)
    groups.form(KEYS, workers, servers)
    seconds = groups.exchange(workers, TIMES)
    groups.leave(workers)
    ideal = predict_exchange(deal(KEYS, servers), workers, Machines(NOMINAL, NOMINAL, added, 0.0, 0.0)).seconds
    link = NOMINAL * ideal / (statistics.median(seconds) - latency)
    return Machines(link, link, added, latency, forming)


def placement(here: Hosts, groups: Groups, workers: int, servers: int, machines: Machines) -> dict[str, Any]:
    dealt = deal(KEYS, servers)
    formed = groups.form(KEYS, workers, servers)
    before = [here.sent(host) for host in range(workers)]
    seconds = statistics.median(groups.exchange(workers, TIMES))
    sent = max(here.sent(host) - bytes_before for host, bytes_before in enumerate(before)) / TIMES
    groups.leave(workers)
    results = {
        "exchange": compared(seconds, predict_exchange(dealt, workers, machines).seconds),
        "init": compared(max(each["init"] for each in formed), init_seconds(dealt, workers, machines)),
        "bytes": compared(sent, busiest(dealt, workers)),
    }
    text = ", ".join(f"{what} {each['measured']:.4g} for {each['predicted']:.4g}" for what, each in results.items())
    progress(f"{workers} workers, {servers} servers: {text}")
    return results


def overlap(groups: Groups, machines: Machines) -> dict[str, float]:
    """Measure a step whose gradients arrive one after another, over as long as their exchange takes.

    With full overlap the step takes that long, without any twice as long. The step guard gives the overlap up now and
    then, to measure the step; but not again so soon after it has done so.
    """
    workers, servers = PREDICTED[0]
    exchanged = predict_exchange(deal(KEYS, servers), workers, machines).seconds
    groups.form(KEYS, workers, servers)
    groups.exchange(workers, 2)
    seconds = statistics.median(groups.exchange(workers, 3, exchanged))
    groups.leave(workers)
    return compared(seconds, step_seconds(exchanged, exchanged, overlap=1.0))


def busiest(dealt: ServerLoad, workers: int) -> float:
    """Bytes that leave the busiest node in an exchange, by the model without its term for the last key."""
    whole = Machines(1.0, 1e18, 1e18, 0.0, 0.0)
    return predict_exchange(ServerLoad(dealt.servers, 0), workers, whole).seconds


def compared(measured: float, predicted: float) -> dict[str, float]:
    return {"measured": measured, "predicted": predicted, "error": abs(predicted - measured) / measured}


def main(out: Path) -> list[Figure]:
    results: dict[str, Any] = {"exchange": {}, "init": {}, "bytes": {}, "release": {}, "state": {}}
    with hosts(max(workers for workers, _ in PREDICTED), MEGABITS) as here:
        groups = Groups(here, max(workers for workers, _ in PREDICTED))
        try:
            machines = calibrate(groups)
            progress(f"{machines}")
            for workers, servers in PREDICTED:
                for what, each in placement(here, groups, workers, servers, machines).items():
                    results[what][f"{workers}_workers.{servers}_servers"] = each
            results["overlap"] = overlap(groups, machines)
            for workers, servers in RELEASES:
                groups.form(KEYS, workers, servers)
                seconds = groups.release(workers)
                each = compared(seconds, predict_release(deal(KEYS, servers), workers, machines).seconds)
                results["release"][f"{workers}_workers.{servers}_servers"] = each
        finally:
            groups.close()
        for receivers in RECEIVERS:
            seconds, _ = transfer(here, receivers, "encrypted", STATE)
            results["state"][f"{receivers}_joiners"] = compared(seconds, state_seconds(STATE, 1, receivers, machines))
    write(out, "model", {"machines": vars(machines), "megabits": MEGABITS, **results})
    return [
        unbounded("model.link.share_of_its_speed", machines.link / NOMINAL),
        unbounded("model.server.gigabytes_a_cpu_second", machines.serving / 1e9),
        unbounded("model.latency.milliseconds", machines.latency * 1e3),
        unbounded("model.create.seconds", machines.forming),
        *(
            unbounded(f"model.{what}.{name}.error", each["error"])
            for what in ("exchange", "init", "release", "state")
            for name, each in results[what].items()
        ),
        at_most("model.overlap.error", results["overlap"]["error"], 0.25),
        at_most("model.bytes.worst_error", max(each["error"] for each in results["bytes"].values()), 0.02),
        *(at_most(f"model.{what}.median_error", median(results[what]), bound) for what, bound in BOUNDS.items()),
        at_most("model.exchange.worst_error", max(each["error"] for each in results["exchange"].values()), 0.45),
    ]


BOUNDS = {"exchange": 0.25, "init": 0.25, "release": 0.35, "state": 0.25}


def median(each: dict[str, dict[str, float]]) -> float:
    return statistics.median(one["error"] for one in each.values())
