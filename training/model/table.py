"""The model's table: networks by number of workers and server placement, and advice on the placement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from dyntrain.training.model.dealing import Dealt, deal
from dyntrain.training.model.networks import NETWORKS
from dyntrain.training.model.prediction import Machines, exchange, pause_seconds, release, step_seconds

BASES = (1, 2, 4)
MOST_WORKERS = 64
# Not measured here, but from https://github.com/NVIDIA/DeepLearningExamples: one V100 with float32 does 384 images a
# second in batches of 96 (MxNet/Classification/RN50v1.5), and 7.56 sentences a second in batches of 7
# (PyTorch/LanguageModeling/BERT, 2019). Other machines differ: `dyntrain model` has an option for this time.
COMPUTE = {"ResNet-50": 0.25, "BERT-large": 0.93}
COPIES = {
    "ResNet-50": 2,
    "BERT-large": 3,
}  # copies of the parameters in a state, with SGD's momentum or Adam's two moments


@dataclass(frozen=True)
class Placement:
    """Servers on `bases` base nodes; None: on every member (`servers: all`)."""

    bases: int | None

    def servers(self, workers: int) -> int:
        return workers if self.bases is None else self.bases

    def __str__(self) -> str:
        return "all" if self.bases is None else f"{self.bases} base"


ALL = Placement(None)


def placements(bases: Sequence[int]) -> tuple[Placement, ...]:
    return (*(Placement(count) for count in bases), ALL)


@dataclass(frozen=True)
class Row:
    """A row of the table, in seconds.

    `efficiency` is the share of a step that is computation. `limit` is the resource that limits the exchange.
    """

    network: str
    workers: int
    placement: Placement
    exchange: float
    limit: str
    step: float
    efficiency: float
    pause: float
    release: float


@cache
def dealt(network: str, servers: int) -> Dealt:
    return deal(NETWORKS[network](), servers)


def row(network: str, workers: int, placement: Placement, machines: Machines, compute: float, overlap: float) -> Row:
    """Predict one row; the pause is for one joining worker."""
    load = dealt(network, placement.servers(workers))
    exchange_bound = exchange(load, workers, machines)
    step = step_seconds(compute, exchange_bound.seconds, overlap)
    return Row(
        network,
        workers,
        placement,
        exchange_bound.seconds,
        exchange_bound.by,
        step,
        compute / step,
        pause_seconds(load, COPIES[network] * load.total, workers - 1, workers, machines),
        release(load, workers, machines).seconds,
    )


def rows(
    networks: Sequence[str],
    workers: Sequence[int],
    bases: Sequence[int],
    machines: Machines,
    compute: float | None,
    overlap: float,
) -> Iterator[Row]:
    """Predict all rows. With `compute` None, each network's value in `COMPUTE` is used."""
    for network in networks:
        for count in workers:
            for placement in placements(bases):
                if placement is ALL or placement.servers(count) < count:
                    seconds = COMPUTE[network] if compute is None else compute
                    yield row(network, count, placement, machines, seconds, overlap)


def bottleneck_from(network: str, placement: Placement, machines: Machines, compute: float) -> int | None:
    """The smallest number of workers from which the exchange takes longer than the computation.

    None if the exchange is shorter up to `MOST_WORKERS`.
    """
    bottleneck = None
    for workers in range(MOST_WORKERS, 1, -1):
        if placement.servers(workers) > workers:
            break
        if exchange(dealt(network, placement.servers(workers)), workers, machines).seconds <= compute:
            break
        bottleneck = workers
    return bottleneck


def advice(network: str, bases: Sequence[int], machines: Machines, compute: float) -> list[str]:
    """A sentence for each placement, with the number of workers from which the exchange dominates a step."""
    limits = {placement: bottleneck_from(network, placement, machines, compute) for placement in placements(bases)}
    return [
        f"{network}, servers on {_words(placement)}: "
        + (
            f"the exchange takes longer than the computing from {limit} workers on"
            if limit is not None
            else f"the exchange is shorter than the computing up to {MOST_WORKERS} workers"
        )
        for placement, limit in limits.items()
    ]


def _words(placement: Placement) -> str:
    if placement is ALL:
        return "all members"
    return f"{placement.bases} base node{'' if placement.bases == 1 else 's'}"
