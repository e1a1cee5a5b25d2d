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
    """The speeds and times of identical nodes, as input of the predictions.

    `link` is a node's speed over TCP, in each direction at the same time. `connection` is the speed of one TCP
    connection; two ps-lite processes share one. `serving` is the speed at which one server receives and adds pushed
    bytes. `latency` is the time of an almost empty exchange. `forming` is the time of a membership change without a
    state transfer, most of which is ps-lite's creation of the group.
    """

    link: float  # bytes a second
    connection: float  # bytes a second
    serving: float  # bytes a second
    latency: float  # seconds
    forming: float  # seconds


@dataclass(frozen=True)
class Bound:
    """A predicted time, and the resource that limits it."""

    seconds: float
    by: str  # name of the limiting resource


def exchange(dealt: Dealt, workers: int, machines: Machines) -> Bound:
    """Predict the exchange of all workers' gradients, from the first push to the last answer.

    A worker pushes all gradients and receives all sums. Bytes to and from the server on the worker's own node use the
    loopback. A server that holds b bytes therefore receives (workers - 1) b bytes over its node's link, and sends as
    many. In addition, the node's worker sends and receives the bytes of the other servers. Bytes in and out are equal
    and simultaneous, except for one key. The answers for a key begin when the last worker has pushed the key, so the
    answers for the last key come at the very end.
    """
    worker_bytes = dealt.total - (dealt.fullest if len(dealt.servers) == workers else 0)
    server_bytes = (workers - 1) * dealt.fullest + dealt.total - dealt.fullest
    last_key_bytes = (workers - 1) * min(dealt.largest, dealt.fullest)
    return _slowest_bound(
        {
            "link": (max(worker_bytes, server_bytes) + last_key_bytes) / machines.link if workers > 1 else 0.0,
            "connection": dealt.fullest / machines.connection if workers > 1 else 0.0,
            "server": workers * dealt.fullest / machines.serving,
        },
        machines.latency,
    )


def step_seconds(compute_seconds: float, exchange_seconds: float, overlap: float) -> float:
    """Predict the time of a step.

    `overlap` is the share of the computation during which gradients are already sent: gradients of the last layers are
    pushed while the backward pass still runs, and no step begins before all sums have arrived.
    """
    return compute_seconds + max(0.0, exchange_seconds - overlap * compute_seconds)


def init_seconds(dealt: Dealt, workers: int, machines: Machines) -> float:
    """Predict ps-lite's init, in which its worker 0 sends the servers a value for each key while all others wait.

    Only the size of the values matters. Worker 0 may be on any node: at worst on a node without a server, or with
    the emptiest server.
    """
    if workers == 1:
        return 0.0
    sent_bytes = dealt.total - (dealt.emptiest if len(dealt.servers) == workers else 0)
    return max(sent_bytes / machines.link, dealt.fullest / machines.connection)


def state_seconds(state_bytes: int, holders: int, joiners: int, machines: Machines) -> float:
    """Predict the time of the state transfer to `joiners`, in chains, one behind each worker with the state.

    Each joiner passes on each arriving chunk, so every further joiner in a chain is one chunk later.
    """
    chain_length = math.ceil(joiners / holders)
    return (state_bytes + (chain_length - 1) * CHUNK) / min(machines.link, machines.connection) if joiners else 0.0


def pause_seconds(dealt: Dealt, state_bytes: int, workers_before: int, workers_after: int, machines: Machines) -> float:
    """Predict the survivors' pause when the number of workers changes from `workers_before` to `workers_after`.

    The pause lasts from the last step of the old generation to the first step of the new one, less the time of an old
    step (as in the event `pause`). A small state is transferred while ps-lite forms, a large state before that.
    """
    init_time = init_seconds(dealt, workers_after, machines)
    transfer_time = state_seconds(state_bytes, workers_before, max(0, workers_after - workers_before), machines)
    return machines.forming + (
        init_time + transfer_time if state_bytes > BESIDE_FORMATION else max(init_time, transfer_time)
    )


def release(dealt: Dealt, workers: int, machines: Machines) -> Bound:
    """Predict the longest release, from the order to push zeros until the last survivor is free.

    In the worst case a worker died before its first push, and all survivors wait for all keys. Each survivor pushes
    zeros for its share of the keys. A survivor receives all sums for its gradients, and the sums of its share once
    more. A server's node also runs a survivor, and sends all other survivors each sum and the answers to their zeros.
    """
    survivor_share = 1 / (workers - 1)
    worker_bytes = (1 + survivor_share) * (dealt.total - (dealt.emptiest if len(dealt.servers) == workers else 0))
    server_bytes = (workers - 1 - survivor_share) * dealt.fullest
    last_key_bytes = 2 * min(dealt.largest, dealt.fullest)
    return _slowest_bound(
        {
            "link": (max(worker_bytes, server_bytes) + last_key_bytes) / machines.link,
            "connection": (1 + survivor_share) * dealt.fullest / machines.connection,
            "server": dealt.fullest / machines.serving,
        },
        machines.latency,
    )


def _slowest_bound(seconds: Mapping[str, float], latency: float) -> Bound:
    slowest_resource = max(seconds, key=lambda name: seconds[name])
    return Bound(latency + seconds[slowest_resource], slowest_resource)
