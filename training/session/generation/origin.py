"""The state from which a generation starts when no worker holds it in memory. Pure.

At each membership change, before anybody can be lost inside ps-lite, every survivor copies the state into memory of its
supervisor. The worker that commits does so at each boundary too, before its next step
(`dyntrain.training.worker.state.safe_state`). So the next processes on these nodes find the state, and fewer steps are
repeated than from the last commit, which may be old on slow storage.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType

from dyntrain.training.protocol.messages import START, Position, SafeCopy, WorkerHello

GENERATIONS = 100  # remembered ones: any commit is further than the safe states of earlier ones


@dataclass(frozen=True)
class Origin:
    """The state at `position`, in the commit or in the safe state of that name on the node `source`.

    With neither, the source initializes it or holds it in memory. `loop` is the loop over epochs to which the state
    belongs; a process in another loop cannot use it.
    """

    position: Position
    commit: str | None = None
    safe: str | None = None
    source: str | None = None
    loop: int = 0


@dataclass(frozen=True)
class Lineage:
    """The generations whose steps still count, oldest first, with their first positions, which never decrease.

    A generation undoes all earlier ones that begin after its first position, and the steps that the one before it had
    trained beyond that position.
    """

    starts: tuple[tuple[int, Position], ...] = ()

    def settled(self, number: int, position: Position) -> Lineage:
        stand = [(earlier, start) for earlier, start in self.starts if start.step <= position.step]
        return Lineage((*stand[1 - GENERATIONS :], (number, position)))

    def without(self, number: int) -> Lineage:
        """Leave a generation out, because the state kept in it is not known to be right."""
        return Lineage(tuple((earlier, start) for earlier, start in self.starts if earlier != number))

    def has(self, copy: SafeCopy) -> bool:
        """Whether all that its generation had trained by then still counts.

        That one worker kept the state implies that all had reached this position.
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
    """Choose the furthest safe state if it is further than the last commit, else the commit, else the job's start.

    The source is the first in `ready` that has the safe state, except those whose (instance, name) is in
    `unreadable_copies`. `loops` maps generations to their loops, where that is not the first; `commit_loop` is the
    commit's loop.
    """
    best = Origin(*commit, loop=commit_loop) if commit else Origin(START)
    for instance, hello in ready.items():
        if (copy := hello.safe) is None:
            continue
        further = copy.position.step > best.position.step or best == Origin(START)
        if further and lineage.has(copy) and (instance, copy.name) not in unreadable_copies:
            best = Origin(copy.position, safe=copy.name, source=instance, loop=loops.get(copy.generation, 0))
    return best
