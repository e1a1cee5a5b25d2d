"""The formulas, each with its reason. Bytes, seconds, and bytes a second throughout. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dyntrain.training.model.dealing import Dealt

# The worker's own, of `transfer.feed` and `membership.handover`, which bring threads and MXNet along (a test compares):
CHUNK = 1 << 20  # a state is handed on in these
BESIDE_FORMATION = 256 << 20  # above it a state is fetched before ps-lite is entered


@dataclass(frozen=True)
class Machines:
    """Nodes that are all alike.

    `link`: of a node, each way at the same time, as TCP makes use of it. `connection`: of one TCP connection; two
    processes of ps-lite have one. `serving`: pushed bytes that one server takes in and adds. `latency`: an exchange of
    next to nothing. `forming`: a change that has nothing to hand over, of which ps-lite's create is the most.
    """

    link: float
    connection: float
    serving: float
    latency: float
    forming: float


@dataclass(frozen=True)
class Bound:
    """What takes `seconds`, and what it waits for."""

    seconds: float
    by: str


def exchange(dealt: Dealt, workers: int, machines: Machines) -> Bound:
    """All gradients of all workers summed, from the first push to the last answer.

    A worker pushes everything and is answered with everything; what goes to the server beside it takes the loopback. So
    of the b bytes that a server has, (workers - 1) b come in over its node's link, and as many go out again; its own
    worker sends the other servers' bytes, and gets them. In and out are the same, and at the same time but for one key:
    the answers for a key begin when the last worker has pushed it, so those for the last key follow all else.
    """
    own = dealt.total - (dealt.fullest if len(dealt.servers) == workers else 0)
    beside = (workers - 1) * dealt.fullest + dealt.total - dealt.fullest
    last = (workers - 1) * min(dealt.largest, dealt.fullest)
    return _slowest(
        {
            "link": (max(own, beside) + last) / machines.link if workers > 1 else 0.0,
            "connection": dealt.fullest / machines.connection if workers > 1 else 0.0,
            "server": workers * dealt.fullest / machines.serving,
        },
        machines.latency,
    )


def step_seconds(compute: float, exchanged: float, overlap: float) -> float:
    """`overlap` is the share of the computing during which gradients go out already: those of the last layers are
    pushed while the backward pass goes on, and no step begins before all sums are there.
    """
    return compute + max(0.0, exchanged - overlap * compute)


def init_seconds(dealt: Dealt, workers: int, machines: Machines) -> float:
    """ps-lite's worker 0 gives the servers a value for each key, of which only the place is used; all others wait. It
    may be on any node, so at worst on one without a server, or beside the emptiest.
    """
    if workers == 1:
        return 0.0
    sent = dealt.total - (dealt.least if len(dealt.servers) == workers else 0)
    return max(sent / machines.link, dealt.fullest / machines.connection)


def state_seconds(state: int, holders: int, joiners: int, machines: Machines) -> float:
    """The joiners stand in chains, one behind each holder, and hand on each chunk as it comes: the last of a chain is
    one chunk later than the one before it, for each before it.
    """
    chain = math.ceil(joiners / holders)
    return (state + (chain - 1) * CHUNK) / min(machines.link, machines.connection) if joiners else 0.0


def pause_seconds(dealt: Dealt, state: int, before: int, after: int, machines: Machines) -> float:
    """What those that stay do not train when the workers go from `before` to `after`: from the last step of the old
    generation to the first of the new one, less a step of the old one (as the event `pause` counts it).

    A small state is on its way while ps-lite forms, a large one before.
    """
    init = init_seconds(dealt, after, machines)
    moved = state_seconds(state, before, max(0, after - before), machines)
    return machines.forming + (init + moved if state > BESIDE_FORMATION else max(init, moved))


def release(dealt: Dealt, workers: int, machines: Machines) -> Bound:
    """From the order to push zeros to the last survivor that is free, at worst: one worker died before it had pushed
    anything, all others wait for all keys.

    Each survivor pushes the zeros for its share of the keys, and is answered with every sum for its gradients, and with
    those of its share once more. A server's node has a survivor of its own, and sends the others each sum, and what the
    zeros that they push are answered with.
    """
    share = 1 / (workers - 1)
    own = (1 + share) * (dealt.total - (dealt.least if len(dealt.servers) == workers else 0))
    beside = (workers - 1 - share) * dealt.fullest
    last = 2 * min(dealt.largest, dealt.fullest)
    return _slowest(
        {
            "link": (max(own, beside) + last) / machines.link,
            "connection": (1 + share) * dealt.fullest / machines.connection,
            "server": dealt.fullest / machines.serving,
        },
        machines.latency,
    )


def _slowest(seconds: Mapping[str, float], latency: float) -> Bound:
    by = max(seconds, key=lambda name: seconds[name])
    return Bound(latency + seconds[by], by)
