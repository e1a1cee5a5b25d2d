"""Makes a table of predictions by network, number of workers and placement of servers, and advice on the placement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from dyntrain.training.model.dealing import ServerLoad, deal
from dyntrain.training.model.networks import NETWORKS
from dyntrain.training.model.prediction import Machines, pause_seconds, predict_exchange, predict_release, step_seconds

BASES = (1, 2, 4)  # numbers of base nodes in the table
MOST_WORKERS = 64  # largest number of workers for which the advice is computed
# Not measured here, but from https://github.com/NVIDIA/DeepLearningExamples: one V100 with float32 does 384 images a
# second in batches of 96 (MxNet/Classification/RN50v1.5), and 7.56 sentences a second in batches of 7
# (PyTorch/LanguageModeling/BERT, 2019). Other machines differ: `dyntrain model` has an option for this time.
COMPUTE = {"ResNet-50": 0.25, "BERT-large": 0.93}  # seconds of computation in a step
PARAMETER_COPIES = {
    "ResNet-50": 2,
    "BERT-large": 3,
}  # copies of the parameters in a state, with SGD's momentum or Adam's two moments


@dataclass(frozen=True)
class Placement:
    """Where ps-lite's servers run: on `bases` base nodes, or if `bases` is None on every node (`servers: all`)."""

    bases: int | None  # number of base nodes with a server, or None

    def servers(self, workers: int) -> int:
        return workers if self.bases is None else self.bases

    def __str__(self) -> str:
        return "all" if self.bases is None else f"{self.bases} base"


ALL = Placement(None)  # a server on every node


def all_placements(bases: Sequence[int]) -> tuple[Placement, ...]:
    return (*(Placement(base_count) for base_count in bases), ALL)


@dataclass(frozen=True)
class Row:
    """A row of the table of predictions. All times in a row are in seconds.

    `efficiency` is the share of a step's time that is computation. `limit` is the resource that limits the speed of the
    gradient exchange.
    """

    network: str  # name of the network
    workers: int  # number of workers
    placement: Placement
    exchange: float  # time to exchange the gradients
    limit: str  # resource that limits the exchange
    step: float  # time of a step
    efficiency: float  # share of a step that is computation
    pause: float  # pause when a worker joins
    release: float  # time until survivors of a crash are released


@cache
def load_of(network: str, servers: int) -> ServerLoad:
    return deal(NETWORKS[network](), servers)


def predict_row(
    network: str, workers: int, placement: Placement, machines: Machines, compute_seconds: float, overlap: float
) -> Row:
    """Predict one row of the table of predictions. The row's `pause` is the pause when one worker joins."""
    server_load = load_of(network, placement.servers(workers))
    exchange_bound = predict_exchange(server_load, workers, machines)
    step_time = step_seconds(compute_seconds, exchange_bound.seconds, overlap)
    return Row(
        network,
        workers,
        placement,
        exchange_bound.seconds,
        exchange_bound.by,
        step_time,
        compute_seconds / step_time,
        pause_seconds(server_load, PARAMETER_COPIES[network] * server_load.total_bytes, workers - 1, workers, machines),
        predict_release(server_load, workers, machines).seconds,
    )


def rows(
    networks: Sequence[str],
    workers: Sequence[int],
    bases: Sequence[int],
    machines: Machines,
    compute_seconds: float | None,
    overlap: float,
) -> Iterator[Row]:
    """Predict all rows of the table of predictions; `compute_seconds` None: each network's value in `COMPUTE`."""
    for network in networks:
        for worker_count in workers:
            for placement in all_placements(bases):
                if placement is ALL or placement.servers(worker_count) < worker_count:
                    compute_time = COMPUTE[network] if compute_seconds is None else compute_seconds
                    yield predict_row(network, worker_count, placement, machines, compute_time, overlap)


def bottleneck_from(network: str, placement: Placement, machines: Machines, compute_seconds: float) -> int | None:
    """Return the smallest number of workers from which the gradient exchange takes longer than the computation.

    Returns None if the exchange is not longer than the computation even with `MOST_WORKERS` workers.
    """
    bottleneck_workers = None
    for workers in range(MOST_WORKERS, 1, -1):
        if placement.servers(workers) > workers:
            break
        if predict_exchange(load_of(network, placement.servers(workers)), workers, machines).seconds <= compute_seconds:
            break
        bottleneck_workers = workers
    return bottleneck_workers


def advice(network: str, bases: Sequence[int], machines: Machines, compute_seconds: float) -> list[str]:
    """Return for each placement of servers from how many workers the exchange takes longer than the computation."""
    bottlenecks = {
        placement: bottleneck_from(network, placement, machines, compute_seconds) for placement in all_placements(bases)
    }
    return [
        f"{network}, servers on {_placement_text(placement)}: "
        + (
            f"the exchange takes longer than the computing from {bottleneck} workers on"
            if bottleneck is not None
            else f"the exchange is shorter than the computing up to {MOST_WORKERS} workers"
        )
        for placement, bottleneck in bottlenecks.items()
    ]


def _placement_text(placement: Placement) -> str:
    if placement is ALL:
        return "all members"
    return f"{placement.bases} base node{'' if placement.bases == 1 else 's'}"
