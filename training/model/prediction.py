"""Formulas that predict the times of exchanges, membership changes and releases.

The units are bytes, seconds and bytes a second. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dyntrain.training.model.dealing import ServerLoad

# Copies of the worker's constants in `transfer.feed` and `membership.handover`, whose import would bring in threads and
# MXNet; a test compares them.
CHUNK = 1 << 20  # size in bytes of the chunks in which a state is sent
BESIDE_FORMATION = 256 << 20  # size in bytes; a larger state is sent before ps-lite forms the group


@dataclass(frozen=True)
class Machines:
    """The speeds and times of identical nodes, as input of the predictions.

    `link` is the speed at which a node can send over TCP, and at the same time receive. `connection` is the speed of
    one TCP connection. Two ps-lite processes send all bytes to each other over a single connection. `serving` is the
    speed at which one server receives and adds pushed bytes. `latency` is the time of an exchange of hardly any bytes.
    `forming` is the time of a membership change without a state transfer, which ps-lite mostly needs to create the
    group.
    """

    link: float  # speed of a node's link, in bytes a second
    connection: float  # speed of one TCP connection, in bytes a second
    serving: float  # speed of one server, in bytes a second
    latency: float  # seconds of an exchange of hardly any bytes
    forming: float  # seconds of a membership change without a state transfer


@dataclass(frozen=True)
class TimeBound:
    """A predicted time, and the resource that determines the time."""

    seconds: float  # predicted time
    by: str  # name of the limiting resource


def predict_exchange(load: ServerLoad, workers: int, machines: Machines) -> TimeBound:
    """Predict the time of the exchange of all workers' gradients, from the first push to the last answer.

    A worker pushes all gradients and receives all sums. Bytes between a worker and a server on the same node do not use
    the node's link. A server of b bytes of gradients therefore receives (workers - 1) b bytes over its node's link, and
    also sends (workers - 1) b bytes. In addition, the worker on a server's node exchanges bytes with the servers on
    other nodes. A node sends and receives equal numbers of bytes at the same time, except for the last key. A server
    answers a key when the last worker has pushed the key, so the answers for the last key follow after all pushes.
    """
    worker_bytes = load.total_bytes - (load.max_server_bytes if len(load.servers) == workers else 0)
    server_bytes = (workers - 1) * load.max_server_bytes + load.total_bytes - load.max_server_bytes
    last_key_bytes = (workers - 1) * min(load.largest, load.max_server_bytes)
    return _slowest_bound(
        {
            "link": (max(worker_bytes, server_bytes) + last_key_bytes) / machines.link if workers > 1 else 0.0,
            "connection": load.max_server_bytes / machines.connection if workers > 1 else 0.0,
            "server": workers * load.max_server_bytes / machines.serving,
        },
        machines.latency,
    )


def step_seconds(compute_seconds: float, exchange_seconds: float, overlap: float) -> float:
    """Predict the time of a training step.

    `overlap` is the share of the computation time during which gradients are already sent. Gradients of the last layers
    are pushed while the backward pass still runs. The next step begins when all sums have arrived.
    """
    return compute_seconds + max(0.0, exchange_seconds - overlap * compute_seconds)


def init_seconds(load: ServerLoad, workers: int, machines: Machines) -> float:
    """Predict ps-lite's init, in which worker 0 sends the servers a value for each key while all other workers wait.

    Worker 0 may be on any node, so the worst case is predicted: a node without a server, or the node of the server with
    the fewest bytes.
    """
    if workers == 1:
        return 0.0
    sent_bytes = load.total_bytes - (load.min_server_bytes if len(load.servers) == workers else 0)
    return max(sent_bytes / machines.link, load.max_server_bytes / machines.connection)


def state_seconds(state_bytes: int, holders: int, joiners: int, machines: Machines) -> float:
    """Predict the time to send the state to `joiners` new workers.

    The joiners form a chain behind each of the `holders` workers that have the state.

    Each joiner passes on each chunk that arrives, so every further joiner in a chain delays the end by one chunk.
    """
    chain_length = math.ceil(joiners / holders)
    return (state_bytes + (chain_length - 1) * CHUNK) / min(machines.link, machines.connection) if joiners else 0.0


def pause_seconds(
    load: ServerLoad, state_bytes: int, workers_before: int, workers_after: int, machines: Machines
) -> float:
    """Predict the survivors' pause when the number of workers changes from `workers_before` to `workers_after`.

    The pause is the time from the last step of the old generation to the first step of the new generation, minus the
    time of a usual step. A small state is transferred while ps-lite forms the group, and a large state before the group
    forms.
    """
    init_time = init_seconds(load, workers_after, machines)
    transfer_time = state_seconds(state_bytes, workers_before, max(0, workers_after - workers_before), machines)
    return machines.forming + (
        init_time + transfer_time if state_bytes > BESIDE_FORMATION else max(init_time, transfer_time)
    )


def predict_release(load: ServerLoad, workers: int, machines: Machines) -> TimeBound:
    """Predict how long the release of blocked survivors takes at most, from the order to push zeros to the last sum.

    In the worst case a worker died before its first push, and all survivors wait for all keys. Each survivor pushes
    zeros for its share of the keys. A survivor receives the sums of all keys, and an answer to each of its zeros. The
    node of a server sends every sum and every answer to the survivors on all other nodes.
    """
    key_share = 1 / (workers - 1)
    worker_bytes = (1 + key_share) * (load.total_bytes - (load.min_server_bytes if len(load.servers) == workers else 0))
    server_bytes = (workers - 1 - key_share) * load.max_server_bytes
    last_key_bytes = 2 * min(load.largest, load.max_server_bytes)
    return _slowest_bound(
        {
            "link": (max(worker_bytes, server_bytes) + last_key_bytes) / machines.link,
            "connection": (1 + key_share) * load.max_server_bytes / machines.connection,
            "server": load.max_server_bytes / machines.serving,
        },
        machines.latency,
    )


def _slowest_bound(seconds: Mapping[str, float], latency: float) -> TimeBound:
    slowest_resource = max(seconds, key=lambda name: seconds[name])
    return TimeBound(latency + seconds[slowest_resource], slowest_resource)
