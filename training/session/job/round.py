"""All that is known of the present generation, in one value that the next generation replaces whole."""

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
    """The generation's ps-lite processes. None at all before the first generation, and after they were given up."""

    hosts: Mapping[str, int] = field(default_factory=dict)  # base nodes that hold them, and the attempt they run in
    orders: tuple[ToNode, ...] = ()  # that started them: said again to a node that connects again
    absent: dict[str, float] = field(default_factory=dict)  # hosts that are not connected, since when


@dataclass
class Round:
    """One generation as far as it has come. What its members said in it dies with it, so nothing is ever reset: a
    formation, a withdrawal, a restart and a recovery each make a new one. Without a generation: nobody holds the state.
    """

    generation: Generation | None = None
    holders: frozenset[str] = frozenset()  # whose memory held the state when the generation was settled
    waits: frozenset[str] = frozenset()  # of them, who had nothing to do any more but to form
    pids: Mapping[str, int] = field(default_factory=dict)  # of the members then, as journaled
    group: PsGroup = field(default_factory=PsGroup)
    forms: Mapping[str, Form] = field(default_factory=dict)  # the orders to form, for whom they did not reach

    prepared: set[str] = field(default_factory=set)
    fetching: dict[str, Fetching] = field(default_factory=dict)  # what each said last of the state's way to it
    formed: dict[str, Formed] = field(default_factory=dict)
    active: set[str] = field(default_factory=set)  # who has trained, in this generation or in one before it
    first_steps: dict[str, FirstStep] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    earlier_pace: float = 0.0  # the one before's, for as long as nobody has said how fast this one goes
    checked_in: dict[str, CheckIn] = field(default_factory=dict)  # who waits at the boundary
    proceeded: Position | None = None  # where the members were last told to step on
    heard: float = 0.0  # when anybody last made progress
    asked_at: float = 0.0  # when all were asked where they are
    where: dict[str, Whereabouts] = field(default_factory=dict)  # as they answered since
    release: Release | None = None  # the survivors are being freed
    lost: set[str] = field(default_factory=set)  # members that a coordinator that came back need not wait for
    given_up: frozenset[str] = frozenset()  # members that are lost for every later coordinator too, as journaled

    @property
    def instances(self) -> tuple[str, ...]:
        return self.generation.instances if self.generation else ()

    @property
    def pace(self) -> float:
        """Samples a second of one worker, as those say who have said it; 0.0: nobody ever has."""
        rates = [progress.samples_per_second for progress in self.progress.values()]
        return sum(rates) / len(rates) if rates else self.earlier_pace

    def held(self, seconds: float) -> None:
        self.heard += seconds
        self.asked_at += seconds
        self.group.absent = {host: since + seconds for host, since in self.group.absent.items()}

    def parked(self, holders: Iterable[str], waits: Iterable[str]) -> Round:
        """The same generation once these have left its group, with the state: what they trained still counts, what they
        said of their formation or boundary does not. `waits`: who has no lines of the script left to run before the
        next.
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
