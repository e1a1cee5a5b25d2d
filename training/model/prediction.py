"""Formulas for the predicted times, each with its reason. Units are bytes, seconds and bytes a second. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dyntrain.training.model.dealing import Dealt

# Copies of the worker's constants in `transfer.feed` and `membership.handover`, whose import would bring in threads and
# MXNet; a test compares them.
CHUNK = 1 << 20  # bytes in which a state is passed on
BESIDE_FORMATION = 256 << 20  # a larger state is fetched before the workers enter ps-lite


@dataclass(frozen=True)
class Machines:
    """Properties of identical nodes.

    `link` is a node's speed over TCP, in each direction at the same time. `connection` is that of one TCP connection;
    two ps-lite processes share one. `serving` is the speed at which one server receives and adds pushed bytes.
    `latency` is the time of an almost empty exchange. `forming` is the time of a membership change without a state
    transfer, most of which is ps-lite's creation of the group.
    """

    link: float
    connection: float
    serving: float
    latency: float
    forming: float


@dataclass(frozen=True)
class Bound:
    """A predicted time, and the resource `by` which this time is limited."""

    seconds: float
    by: str


def exchange(dealt: Dealt, workers: int, machines: Machines) -> Bound:
    """Predict the exchange of all workers' gradients, from the first push to the last answer.

    A worker pushes all gradients and receives all sums; bytes to and from the server on its own node use the loopback.
    So of the b bytes on a server, (workers - 1) b come in over its node's link, and as many go out; the node's worker
    sends and receives the bytes of the other servers. Both directions are equal and simultaneous, except for one key:
    the answers for a key begin when the last worker has pushed it, so the answers for the last key come at the very
    end.
    """
    worker_bytes = dealt.total - (dealt.fullest if len(dealt.servers) == workers else 0)
    server_bytes = (workers - 1) * dealt.fullest + dealt.total - dealt.fullest
    last = (workers - 1) * min(dealt.largest, dealt.fullest)
    return _slowest(
        {
            "link": (max(worker_bytes, server_bytes) + last) / machines.link if workers > 1 else 0.0,
            "connection": dealt.fullest / machines.connection if workers > 1 else 0.0,
            "server": workers * dealt.fullest / machines.serving,
        },
        machines.latency,
    )


def step_seconds(compute: float, exchange_seconds: float, overlap: float) -> float:
    """Predict the time of a step.

    `overlap` is the share of the computation during which gradients are already sent: gradients of the last layers are
    pushed while the backward pass still runs, and no step begins before all sums have arrived.
    """
    return compute + max(0.0, exchange_seconds - overlap * compute)


def init_seconds(dealt: Dealt, workers: int, machines: Machines) -> float:
    """Predict ps-lite's init, in which its worker 0 sends the servers a value for each key while all others wait.

    The values do not matter, only their size. Worker 0 may be on any node: at worst on a node without a server, or with
    the emptiest server.
    """
    if workers == 1:
        return 0.0
    sent = dealt.total - (dealt.emptiest if len(dealt.servers) == workers else 0)
    return max(sent / machines.link, dealt.fullest / machines.connection)


def state_seconds(state: int, holders: int, joiners: int, machines: Machines) -> float:
    """Predict the state transfer to `joiners`, in chains, one behind each holder.

    Each joiner passes on each arriving chunk, so every further joiner in a chain is one chunk later.
    """
    chain = math.ceil(joiners / holders)
    return (state + (chain - 1) * CHUNK) / min(machines.link, machines.connection) if joiners else 0.0


def pause_seconds(dealt: Dealt, state: int, before: int, after: int, machines: Machines) -> float:
    """Predict the survivors' pause when the number of workers changes from `before` to `after`.

    The pause lasts from the last step of the old generation to the first step of the new one, less the time of an old
    step (as in the event `pause`). A small state is transferred while ps-lite forms, a large one before.
    """
    init = init_seconds(dealt, after, machines)
    transfer = state_seconds(state, before, max(0, after - before), machines)
    return machines.forming + (init + transfer if state > BESIDE_FORMATION else max(init, transfer))


def release(dealt: Dealt, workers: int, machines: Machines) -> Bound:
    """Predict the longest release, from the order to push zeros until the last survivor is free.

    In the worst case a worker died before its first push, and all others wait for all keys. Each survivor pushes zeros
    for its share of the keys. A survivor receives all sums for its gradients, and the sums of its share once more. A
    server's node has a survivor of its own, and sends the others each sum and the answers to their zeros.
    """
    share = 1 / (workers - 1)
    worker_bytes = (1 + share) * (dealt.total - (dealt.emptiest if len(dealt.servers) == workers else 0))
    server_bytes = (workers - 1 - share) * dealt.fullest
    last = 2 * min(dealt.largest, dealt.fullest)
    return _slowest(
        {
            "link": (max(worker_bytes, server_bytes) + last) / machines.link,
            "connection": (1 + share) * dealt.fullest / machines.connection,
            "server": dealt.fullest / machines.serving,
        },
        machines.latency,
    )


def _slowest(seconds: Mapping[str, float], latency: float) -> Bound:
    by = max(seconds, key=lambda name: seconds[name])
    return Bound(latency + seconds[by], by)
