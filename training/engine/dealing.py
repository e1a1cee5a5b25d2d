"""Which of ps-lite's servers adds up which part of the gradients. Pure.

ps-lite chooses by a key's number alone (`EncodeDefaultKey` in MXNet's src/kvstore/kvstore_dist.h), whatever its size:
of ResNet-50's keys, numbered one after another, one of five servers would have 45 % of all bytes, and everybody waits
for it. The numbers are ours to choose. `make bench BENCH=model` sees by the bytes on the links that the keys go there.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

_STRIDE = 9973  # ps-lite's; a prime, so that every server has numbers of its own


def server_of(number: int, servers: int) -> int:
    return number * _STRIDE % servers


def numbered(sizes: Sequence[int], servers: int) -> list[int]:
    """A key's number for each of these sizes (bytes), all different, so that the servers have nearly the same to add
    up: the largest goes first, to the server that has least; the fullest has at most 4/3 of what is possible (Graham,
    Bounds on Multiprocessing Timing Anomalies, 1969). The same on every worker, as nothing else has a part in it.
    """
    first = pow(_STRIDE, -1, servers)
    loads = [(0, server) for server in range(servers)]
    dealt = [0] * servers
    numbers = [0] * len(sizes)
    for place in sorted(range(len(sizes)), key=lambda place: (-sizes[place], place)):
        load, server = heapq.heappop(loads)
        numbers[place] = first * server % servers + servers * dealt[server]
        dealt[server] += 1
        heapq.heappush(loads, (load + sizes[place], server))
    return numbers
