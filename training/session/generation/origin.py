"""Chooses the state from which a generation starts if no worker holds the state in memory. Pure.

At each change of the membership every remaining worker copies the state into its supervisor's memory. The copy, called
a safe state, is made before the workers enter ps-lite, where the loss of a worker requires a restart of all workers.
The worker that writes commits (checkpoints) also makes a safe state at each boundary, before its next step
(`dyntrain.training.worker.state.safe_state`). New processes on a node find the safe state in the supervisor's memory,
and repeat fewer steps than after a start from the last commit. On slow storage the last commit may be old.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType

from dyntrain.training.protocol.messages import START, Position, SafeCopy, WorkerHello

GENERATIONS = 100  # most generations in a lineage; any commit is further than older safe states


@dataclass(frozen=True)
class Origin:
    """The state at `position` is in the commit named `commit`, or in the safe state named `safe` on the node `source`.

    Without commit and safe state, a worker initializes the state or holds the state in memory. `loop` is the loop over
    epochs to which the state belongs; a process in another loop cannot use the state.
    """

    position: Position
    commit: str | None = None  # name of a commit
    safe: str | None = None  # name of a safe state
    source: str | None = None  # node of the safe state
    loop: int = 0  # index of the loop over epochs


@dataclass(frozen=True)
class Lineage:
    """The generations whose steps are still valid, oldest first, each with its first position.

    The first positions never decrease from one generation to the next. A new generation undoes all earlier generations
    that begin after its first position, and the previous generation's steps beyond this position.
    """

    starts: tuple[tuple[int, Position], ...] = ()  # number and first position of each generation

    def add_generation(self, number: int, position: Position) -> Lineage:
        valid_starts = [(earlier_number, start) for earlier_number, start in self.starts if start.step <= position.step]
        return Lineage((*valid_starts[1 - GENERATIONS :], (number, position)))

    def without_generation(self, number: int) -> Lineage:
        """Return the lineage without a generation whose safe states may be wrong."""
        return Lineage(
            tuple((earlier_number, start) for earlier_number, start in self.starts if earlier_number != number)
        )

    def contains(self, copy: SafeCopy) -> bool:
        """Whether all steps that a safe state contains are still valid.

        A worker keeps a safe state only after all workers have reached the position of this state.
        """
        for (number, start), next_start in zip_longest(self.starts, self.starts[1:]):
            if number == copy.generation:
                return start.step <= copy.position.step and (
                    next_start is None or copy.position.step <= next_start[1].step
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
    """Choose the furthest safe state if further than the last commit, else the last commit.

    Without safe state and commit, choose the job's start. The source is the first worker in `ready` whose node has the
    chosen safe state. Safe states whose pair (instance, name) is in `unreadable_copies` are not used. `loops` maps
    generations to their loops over epochs; a missing generation belongs to the first loop. `commit_loop` is the loop
    over epochs in which the commit was written.
    """
    best_origin = Origin(*commit, loop=commit_loop) if commit else Origin(START)
    for instance_id, hello in ready.items():
        if (copy := hello.safe) is None:
            continue
        copy_is_further = copy.position.step > best_origin.position.step or best_origin == Origin(START)
        if copy_is_further and lineage.contains(copy) and (instance_id, copy.name) not in unreadable_copies:
            best_origin = Origin(copy.position, safe=copy.name, source=instance_id, loop=loops.get(copy.generation, 0))
    return best_origin
