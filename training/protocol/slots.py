"""Several worker processes per node, as with one for each GPU: the node's slots, in Horovod's terms. Pure.

Each process has a name: that of its instance for the first one, with `:` and its slot for the others, `i-0123:1`. To
the coordinator each is a node with one worker; membership is decided by instances, whose processes join and leave
together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_SLOTS = 64


@dataclass(frozen=True)
class Place:
    """Ranks and sizes of a process, in Horovod's terms."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


def name_of(instance: str, slot: int) -> str:
    return f"{instance}:{slot}" if slot else instance


def node_of(name: str) -> str:
    return name.partition(":")[0]


def slot_of(name: str) -> int:
    return int(name.partition(":")[2] or 0)


def names_of(instance: str, slots: int) -> tuple[str, ...]:
    return tuple(name_of(instance, slot) for slot in range(slots))


def nodes_of(names: Iterable[str]) -> tuple[str, ...]:
    """The instances, each once, in order."""
    return tuple(dict.fromkeys(map(node_of, names)))


def places(names: Sequence[str]) -> dict[str, Place]:
    """Places of the processes, given in the order of their ranks.

    The local rank counts those of an instance, the cross rank the instances with a process of the same local rank.
    """
    local: dict[str, int] = {}
    count: dict[str, int] = {}
    cross: dict[str, int] = {}
    width: dict[int, int] = {}
    for name in names:
        instance = node_of(name)
        local[name] = count.get(instance, 0)
        count[instance] = local[name] + 1
        cross[name] = width.get(local[name], 0)
        width[local[name]] = cross[name] + 1
    return {
        name: Place(rank, len(names), local[name], count[node_of(name)], cross[name], width[local[name]])
        for rank, name in enumerate(names)
    }
