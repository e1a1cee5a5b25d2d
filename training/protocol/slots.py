"""Names and ranks if a node has several worker processes (slots, in Horovod's terms), such as one for each GPU. Pure.

The name of a node's first process is the instance id, such as `i-0123`. The name of a further process is the instance
id, a colon and the slot's number, such as `i-0123:1`. The coordinator treats each process as a node with one worker.
Membership is decided for whole instances, so the processes of an instance join and leave together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_SLOTS = 64  # maximum of worker processes on a node


@dataclass(frozen=True)
class Place:
    """The ranks of a process and the numbers of processes, in Horovod's terms."""

    rank: int  # number of the process among all processes
    size: int  # number of all processes
    local_rank: int  # number of the process on its instance
    local_size: int  # number of the instance's processes
    cross_rank: int  # number of the instance among instances with a process of this local rank
    cross_size: int  # number of instances with a process of this local rank


def name_of(instance: str, slot: int) -> str:
    return f"{instance}:{slot}" if slot else instance


def node_of(name: str) -> str:
    return name.partition(":")[0]


def slot_of(name: str) -> int:
    return int(name.partition(":")[2] or 0)


def names_of(instance: str, slots: int) -> tuple[str, ...]:
    return tuple(name_of(instance, slot) for slot in range(slots))


def nodes_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return the instances of the named processes, each instance once, in the order of `names`."""
    return tuple(dict.fromkeys(map(node_of, names)))


def places(names: Sequence[str]) -> dict[str, Place]:
    """Return each process's place (ranks and sizes). The processes in `names` are in the order of their ranks.

    The local rank is a process's number on its instance. The cross rank is the instance's number among the instances
    that have a process of this local rank.
    """
    local_ranks: dict[str, int] = {}
    local_sizes: dict[str, int] = {}
    cross_ranks: dict[str, int] = {}
    cross_sizes: dict[int, int] = {}
    for name in names:
        instance_id = node_of(name)
        rank_on_node = local_ranks[name] = local_sizes.get(instance_id, 0)
        local_sizes[instance_id] = rank_on_node + 1
        cross_ranks[name] = cross_sizes.get(rank_on_node, 0)
        cross_sizes[rank_on_node] = cross_ranks[name] + 1
    return {
        name: Place(
            rank,
            len(names),
            local_ranks[name],
            local_sizes[node_of(name)],
            cross_ranks[name],
            cross_sizes[local_ranks[name]],
        )
        for rank, name in enumerate(names)
    }
