"""What the coordinator knows of its job, and the report that it makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from controller.contract import JobReport, Target
from training.clocks import Clocks
from training.generation import Generation, Limits, Reason
from training.layout import COMMITS_KEPT
from training.orders import ToNode
from training.origin import START, Line
from training.planning import report_members
from training.protocol import (
    CheckIn,
    FirstStep,
    Form,
    Formed,
    Position,
    Progress,
)
from training.release import Release
from training.roster import Budget, Roster
from training.trouble import Trouble

PAUSE_SECONDS = 3600.0


class Phase(Enum):
    RECOVERING = "recovering"  # a coordinator that came back waits for the members of the generation it journaled
    WAITING = "waiting"  # nobody holds the state: the next generation starts from a safe state or the last commit
    PARKED = "parked"  # the members hold the state, outside any group, and wait for a generation that can be formed
    PREPARING = "preparing"  # the orders to form are out; nobody has begun to, so all can be called back
    FORMING = "forming"  # the word to go is out: members may be inside ps-lite, where nobody can be called back
    TRAINING = "training"
    RELEASING = "releasing"  # a member is lost; the survivors free themselves
    OVER = "over"


@dataclass(frozen=True)
class Options:
    cluster: str
    job: str
    started_at: float
    limits: Limits
    workers: int  # how many the first generation waits for
    segment_steps: int | None = None
    checkpoint_dir: str | None = None  # of this job; None: in its folder on the shared volume
    boundary: Literal["epoch", "segment"] = "epoch"  # where voluntary changes are made; who has a deadline goes at the next segment in any case
    recovery: Literal["release", "restart"] = "release"
    clocks: Clocks = field(default_factory=Clocks)
    pause_seconds: float = PAUSE_SECONDS  # how long a job without enough workers, or without ps-lite processes, waits for them before it fails
    budget: Budget = field(default_factory=Budget)


@dataclass
class Knowledge:
    options: Options
    transfer_token: Callable[[], str]  # fresh and unguessable each time: secrets are not made in pure code
    phase: Phase = Phase.WAITING
    generation: Generation | None = None
    roster: Roster = field(init=False)
    number: int = 0  # of the latest generation, also over restarts
    holders: frozenset[str] = frozenset()  # whose memory held the state when the generation was settled
    forms: dict[str, Form] = field(default_factory=dict)  # the orders of a generation that is being formed, for whom they did not reach
    prepared: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)  # members that a coordinator that came back need not wait for
    pids: dict[str, int] = field(default_factory=dict)  # of the members, as journaled
    position: Position = START
    commit: tuple[Position, str] | None = None
    earlier: list[tuple[Position, str]] = field(default_factory=list)  # commits before it that are still kept, oldest first
    line: Line = field(default_factory=Line)  # the last generations that were settled at one position
    spoiled: set[tuple[str, str]] = field(default_factory=set)  # (instance, name) of safe states that could not be read
    target: Target | None = None
    checked_in: dict[str, CheckIn] = field(default_factory=dict)
    formed: dict[str, Formed] = field(default_factory=dict)
    first_steps: dict[str, FirstStep] = field(default_factory=dict)
    active: set[str] = field(default_factory=set)
    release: Release | None = None
    group_orders: tuple[ToNode, ...] = ()  # to start the generation's ps-lite processes, for whom they did not reach
    group_hosts: dict[str, int] = field(default_factory=dict)  # base nodes with the generation's ps-lite processes, and their attempt
    hosts_absent: dict[str, float] = field(default_factory=dict)
    proceeded: Position | None = None  # where the members were last told to step on
    heard: float = 0.0  # when anybody last made progress
    void_until: int = 0  # commits of generations up to this one were overtaken by a restart
    progress: dict[str, Progress] = field(default_factory=dict)
    since: float = 0.0  # of the phase, or of the first check-in at a boundary
    sequence: int = 0
    paused: Reason | None = None
    paused_since: float = 0.0
    trouble: Trouble = field(default_factory=Trouble)
    outcome: str = ""
    awaited: set[str] = field(default_factory=set)  # members that have not left yet, as far as a coordinator that came back after the end knows
    closed: bool = False  # over, and everybody has left

    def __post_init__(self) -> None:
        self.roster = Roster(self.options.budget)

    def note_commit(self, position: Position, name: str) -> None:
        if self.commit is not None:
            self.earlier = [*self.earlier, self.commit][1 - COMMITS_KEPT :]
        self.commit = (position, name)

    def drop_commit(self) -> None:
        """The newest commit is of no use: the one before it takes its place."""
        self.commit = self.earlier.pop() if self.earlier else None

    def report(self, now: float) -> JobReport:
        """The coordinator's word for the controller; leaving members count until they have left."""
        state = {
            Phase.WAITING: "starting" if self.number == 0 else "paused",
            Phase.PARKED: "paused" if self.paused else "running",
            Phase.OVER: self.outcome or "finished",
        }.get(self.phase, "running")  # RECOVERING too: the members of the journal are, as far as anyone knows, training
        generation = self.generation if self.phase is not Phase.OVER else None
        ahead = max(self.progress.values(), key=lambda p: p.position.step, default=None)
        position = ahead.position if ahead else self.position
        return JobReport(
            cluster=self.options.cluster,
            job=self.options.job,
            state=state,
            started_at=self.options.started_at,
            sequence=self.sequence,
            generation=self.number,
            revision=self.target.revision if self.target else 0,
            members=report_members(generation, self.active, self.roster.leaving),
            epoch=position.epoch,
            epochs=self.roster.epochs,
            step=position.step,
            samples_per_second=sum(p.samples_per_second for p in self.progress.values()),
            reason=self.paused.value if self.paused else "",
        )
