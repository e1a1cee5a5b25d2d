"""What the coordinator knows of its job, and the report that it makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Self

from controller.contract import JobReport, Target
from training.generation import Generation, Limits, Member, Reason
from training.layout import COMMITS_KEPT
from training.planning import report_members
from training.protocol import (
    CheckIn,
    FirstStep,
    Formed,
    Position,
    Progress,
)
from training.release import Release
from training.roster import Budget, Roster

START = Position(epoch=0, offset=0, step=0)


class Phase(Enum):
    RECOVERING = "recovering"  # a coordinator that came back waits for the members of the generation it journaled
    WAITING = "waiting"
    FORMING = "forming"
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
    liveness_seconds: float = 20.0  # without a sign of life for so long, a process counts as hung and its connection is closed
    reconnect_grace: float = 3.0  # how long a worker may be without a connection before it counts as lost
    start_grace: float = 60.0  # how long a start or restart waits for missing workers once the minimum is there
    formation_seconds: float = 60.0  # from the orders to the last "formed"
    boundary_seconds: float = 600.0  # how long the first at a boundary waits for the last
    progress_seconds: float = 600.0  # without a step or a boundary of anybody for so long, the job is stuck, whatever the reason
    recovery: Literal["release", "restart"] = "release"
    release_seconds: float = 10.0  # from the loss to the last survivor's freedom; then their processes are restarted
    budget: Budget = field(default_factory=Budget)


@dataclass
class Knowledge:
    options: Options
    transfer_token: Callable[[], str]  # fresh and unguessable each time: secrets are not made in pure code
    phase: Phase = Phase.WAITING
    generation: Generation | None = None
    roster: Roster = field(init=False)
    number: int = 0  # of the latest generation, also over restarts
    position: Position = START
    commit: tuple[Position, str] | None = None
    earlier: list[tuple[Position, str]] = field(default_factory=list)  # commits before it that are still kept, oldest first
    target: Target | None = None
    checked_in: dict[str, CheckIn] = field(default_factory=dict)
    formed: dict[str, Formed] = field(default_factory=dict)
    first_steps: dict[str, FirstStep] = field(default_factory=dict)
    active: set[str] = field(default_factory=set)
    release: Release | None = None
    group_hosts: dict[str, int] = field(default_factory=dict)  # base nodes with the generation's ps-lite processes, and their attempt
    hosts_absent: dict[str, float] = field(default_factory=dict)
    proceeded: Position | None = None  # where the members were last told to step on
    heard: float = 0.0  # when anybody last made progress
    void_until: int = 0  # commits of generations up to this one were overtaken by a restart
    progress: dict[str, Progress] = field(default_factory=dict)
    since: float = 0.0  # of the phase, or of the first check-in at a boundary
    sequence: int = 0
    paused: Reason | None = None
    outcome: str = ""

    def __post_init__(self) -> None:
        self.roster = Roster(self.options.budget)

    @classmethod
    def recovered(cls, options: Options, transfer_token: Callable[[], str], journal: Sequence[dict[str, Any]], now: float) -> Self:
        """The session as its journal leaves it: with the last generation's members expected back, or waiting from the last commit."""
        session = cls(options, transfer_token, since=now)
        for record in journal:
            if record["kind"] == "generation":
                session.number, session.position = record["number"], Position(**record["position"])
                members = tuple(Member(i, joined_epoch=session.position.epoch, joined_at=record["at"]) for i in record["members"])
                session.generation = Generation(session.number, members, session.position, source=record["members"][0])
            elif record["kind"] == "commit":
                session.note_commit(Position(**record["position"]), record["name"])
            elif record["kind"] == "commit_unreadable":
                session.drop_commit()
            elif record["kind"] == "restart":
                session.generation = None
            elif record["kind"] in ("finished", "failed"):
                session.phase, session.outcome, session.generation = Phase.OVER, record["kind"], None
                session.position = Position(**record["position"]) if "position" in record else session.position
        if session.generation is not None:
            session.phase = Phase.RECOVERING
        return session

    def note_commit(self, position: Position, name: str) -> None:
        if self.commit is not None:
            self.earlier = [*self.earlier, self.commit][1 - COMMITS_KEPT :]
        self.commit = (position, name)

    def drop_commit(self) -> None:
        """The newest commit is of no use: the one before it takes its place."""
        self.commit = self.earlier.pop() if self.earlier else None

    def report(self, now: float) -> JobReport:
        """The coordinator's word for the controller; leaving members count until they have left."""
        state = {Phase.WAITING: "starting" if self.number == 0 else "paused", Phase.OVER: self.outcome or "finished"}.get(self.phase, "running")
        # RECOVERING counts as running: the members of the journal are, as far as anyone knows, training.
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
