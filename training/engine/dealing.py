"""Assigns the gradients' parts to ps-lite's servers. Pure.

MXNet chooses the server of a key by the key's number, not by the key's size (`EncodeDefaultKey` in MXNet's
src/kvstore/kvstore_dist.h). If ResNet-50's keys were numbered consecutively, one of five servers would have 45 % of all
bytes, and all workers would wait for this server. So this module chooses the keys' numbers such that all servers get
nearly equal numbers of bytes. `make bench BENCH=model` measures the traffic of each server, and so checks that the keys
go to the chosen servers.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

_STRIDE = 9973  # ps-lite's; a prime, so that every server has key numbers


def server_of(key_number: int, servers: int) -> int:
    return key_number * _STRIDE % servers


def assign_key_numbers(sizes: Sequence[int], servers: int) -> list[int]:
    """Return a distinct key number for each of `sizes` (bytes), so that servers get nearly equal numbers of bytes.

    Sizes are assigned in descending order, each to the server with the fewest bytes so far. The server with the most
    bytes has at most 4/3 of the optimum (Graham, Bounds on Multiprocessing Timing Anomalies, 1969). The result depends
    only on the arguments, so all workers compute the same numbers.
    """
    stride_inverse = pow(_STRIDE, -1, servers)
    server_loads = [(0, server) for server in range(servers)]  # (bytes, server)
    key_counts = [0] * servers  # keys of each server so far
    key_numbers = [0] * len(sizes)
    for size_index in sorted(range(len(sizes)), key=lambda size_index: (-sizes[size_index], size_index)):
        load, server = heapq.heappop(server_loads)
        key_numbers[size_index] = stride_inverse * server % servers + servers * key_counts[server]
        key_counts[server] += 1
        heapq.heappush(server_loads, (load + sizes[size_index], server))
    return key_numbers
