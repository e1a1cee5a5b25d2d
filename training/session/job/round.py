"""The state of the present generation, in one object that is replaced as a whole for the next generation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dyntrain.training.protocol.messages import (
    CheckIn,
    Fetching,
    FirstStep,
    Form,
    Formed,
    Position,
    Progress,
    Whereabouts,
)
from dyntrain.training.session.generation.generation import Generation
from dyntrain.training.session.generation.release import Release
from dyntrain.training.session.orders import ToNode


@dataclass
class PsGroup:
    """The generation's ps-lite processes; empty before the first generation, and after the processes are lost."""

    hosts: Mapping[str, int] = field(default_factory=dict)  # nodes that run the processes, with the node's attempt
    orders: tuple[ToNode, ...] = ()  # orders that started the processes, to repeat to a node that connects again
    absent: dict[str, float] = field(default_factory=dict)  # disconnected hosts, with the time of the disconnection


@dataclass
class Round:
    """One generation and its progress; if `generation` is None, no worker holds the state.

    Each formation, cancellation, restart and recovery makes a new Round, so that recorded messages of members are
    dropped with their generation.
    """

    generation: Generation | None = None  # None: no worker holds the state
    holders: frozenset[str] = frozenset()  # members that had the state in memory at first
    waits: frozenset[str] = frozenset()  # holders whose script was waiting before the formation
    pids: Mapping[str, int] = field(default_factory=dict)  # pids of the members, as in the journal
    group: PsGroup = field(default_factory=PsGroup)  # the generation's ps-lite processes
    forms: Mapping[str, Form] = field(default_factory=dict)  # orders to form, to repeat lost orders

    prepared: set[str] = field(default_factory=set)  # members that wait for the order to go
    fetching: dict[str, Fetching] = field(default_factory=dict)  # each member's last report on its state transfer
    formed: dict[str, Formed] = field(default_factory=dict)  # members that have joined the group
    active: set[str] = field(default_factory=set)  # members that have trained, in this generation or an earlier one
    first_steps: dict[str, FirstStep] = field(default_factory=dict)  # the members' reports on their first step
    progress: dict[str, Progress] = field(default_factory=dict)  # each member's last report on its progress
    earlier_pace: float = 0.0  # the previous generation's pace, until a member reports its speed
    checked_in: dict[str, CheckIn] = field(default_factory=dict)  # members that wait at the boundary
    proceed_position: Position | None = None  # the position of the last order to proceed
    progress_at: float = 0.0  # when a member last reported progress
    asked_at: float = 0.0  # when all members were last asked for their whereabouts
    whereabouts: dict[str, Whereabouts] = field(default_factory=dict)  # the members' answers to the last question
    release: Release | None = None  # set while the survivors are being freed
    lost: set[str] = field(default_factory=set)  # members for which a restarted coordinator need not wait
    given_up: frozenset[str] = frozenset()  # members that are journaled as lost

    @property
    def instances(self) -> tuple[str, ...]:
        return self.generation.instances if self.generation else ()

    @property
    def pace(self) -> float:
        """Mean samples per second of one worker, over the members that reported their speed.

        Without reports on speed, the value is the previous generation's pace, or 0.0 without a previous generation.
        """
        rates = [progress.samples_per_second for progress in self.progress.values()]
        return sum(rates) / len(rates) if rates else self.earlier_pace

    def extend_deadlines(self, seconds: float) -> None:
        self.progress_at += seconds
        self.asked_at += seconds
        self.group.absent = {host: since + seconds for host, since in self.group.absent.items()}

    def parked_copy(self, holders: Iterable[str], waits: Iterable[str]) -> Round:
        """Return the same generation after the members in `holders` have left its group of processes with the state.

        The members' reports on their training are kept; their messages about a formation or boundary are dropped.
        `waits` names the members whose script has run its own lines and waits for the next formation.
        """
        return Round(
            generation=self.generation,
            holders=frozenset(holders),
            waits=frozenset(waits),
            active=self.active,
            first_steps=self.first_steps,
            progress=self.progress,
            earlier_pace=self.earlier_pace,
        )
