"""What a generation starts from when nobody holds the state in memory. Pure.

At a change of membership each survivor keeps the state in memory of its supervisor before anybody may be lost inside ps-lite (`training.safe_state`).
So after such a loss the next process of any of these nodes has it, and nothing that was trained is trained again; a commit may be a segment behind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from training.protocol import Position, SafeCopy, WorkerHello

START = Position(epoch=0, offset=0, step=0)


@dataclass(frozen=True)
class Origin:
    """The state at `position`: in the commit, or in the safe state of this name on the node `source`; neither: the source makes it, or holds it."""

    position: Position
    commit: str | None = None
    safe: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class Line:
    """The generations `first` to `last`, all settled at one position, with nothing before it undone in between: they began with one state."""

    first: int = 1
    last: int = 0
    position: Position = START

    def settled(self, number: int, position: Position) -> Line:
        return Line(self.first if position == self.position else number, number, position)

    def has(self, copy: SafeCopy) -> bool:
        return self.first <= copy.generation <= self.last and copy.position == self.position


def choose_origin(commit: tuple[Position, str] | None, line: Line, ready: Mapping[str, WorkerHello], spoiled: Collection[tuple[str, str]]) -> Origin:
    """A safe state when it is further than the last commit, else that; the job's start when there is neither. Of its holders the first that is
    `ready`; those whose (instance, name) is among the `spoiled` could not read theirs."""
    if commit is None or commit[0].step < line.position.step:
        for instance, hello in ready.items():
            if hello.safe is not None and line.has(hello.safe) and (instance, hello.safe.name) not in spoiled:
                return Origin(line.position, safe=hello.safe.name, source=instance)
    return Origin(*commit) if commit else Origin(START)
