"""What a generation starts from when nobody holds the state in memory. Pure.

At each change of membership every survivor keeps the state in memory of its supervisor before anybody may be lost
inside ps-lite, and at each boundary the worker that commits does so before it steps on
(`dyntrain.training.worker.state.safe_state`). So the next process of these nodes has it, and less is trained again than
since the last commit, which may be old on slow storage.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType

from dyntrain.training.protocol.messages import START, Position, SafeCopy, WorkerHello

GENERATIONS = 100  # that are remembered: safe states of earlier ones are behind any commit


@dataclass(frozen=True)
class Origin:
    """The state at `position`: in the commit, or in the safe state of this name on the node `source`; neither: the
    source makes it, or holds it. `loop`: which loop over epochs it is of, so that no process in another can take it.
    """

    position: Position
    commit: str | None = None
    safe: str | None = None
    source: str | None = None
    loop: int = 0


@dataclass(frozen=True)
class Lineage:
    """The generations of which something still counts, oldest first, with their first positions: none begins before the
    one that it follows.

    A generation that begins before others did undoes them, and what the one before it had trained beyond that point.
    """

    starts: tuple[tuple[int, Position], ...] = ()

    def settled(self, number: int, position: Position) -> Lineage:
        stand = [(earlier, start) for earlier, start in self.starts if start.step <= position.step]
        return Lineage((*stand[1 - GENERATIONS :], (number, position)))

    def without(self, number: int) -> Lineage:
        """What was kept in this generation does not count: it is not known to be right."""
        return Lineage(tuple((earlier, start) for earlier, start in self.starts if earlier != number))

    def has(self, copy: SafeCopy) -> bool:
        """Whether what its generation had trained by then still counts. That a worker kept the state says that all had
        come to this position.
        """
        for (number, start), following in zip_longest(self.starts, self.starts[1:]):
            if number == copy.generation:
                return start.step <= copy.position.step and (
                    following is None or copy.position.step <= following[1].step
                )
        return False


def choose_origin(
    commit: tuple[Position, str] | None,
    lineage: Lineage,
    ready: Mapping[str, WorkerHello],
    unreadable_copies: Collection[tuple[str, str]],
    loops: Mapping[int, int] = MappingProxyType({}),
    commit_loop: int = 0,
) -> Origin:
    """The furthest safe state when it is further than the last commit, else that; the job's start when there is
    neither. Of its holders the first that is `ready`, unless its (instance, name) is among the
    `unreadable_copies`. `loops`: of generations, where it is not the first; `commit_loop`: of the commit.
    """
    best = Origin(*commit, loop=commit_loop) if commit else Origin(START)
    for instance, hello in ready.items():
        if (copy := hello.safe) is None:
            continue
        further = copy.position.step > best.position.step or best == Origin(START)
        if further and lineage.has(copy) and (instance, copy.name) not in unreadable_copies:
            best = Origin(copy.position, safe=copy.name, source=instance, loop=loops.get(copy.generation, 0))
    return best
