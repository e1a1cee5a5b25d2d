"""What the coordinator knows of its job over all generations, and the job report made from this knowledge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from dyntrain.controller.contract.messages import Target
from dyntrain.controller.contract.reports import MAX_TEXT_LENGTH, JobReport
from dyntrain.training.journal import JobBegun
from dyntrain.training.protocol.messages import COMMITS_KEPT, ENDLESS, MODULE, START, Position, WorkerHello
from dyntrain.training.protocol.node_messages import Launch
from dyntrain.training.session.generation.agreement import describe_changed_settings
from dyntrain.training.session.generation.generation import SettlementReason
from dyntrain.training.session.generation.origin import Lineage, Origin, choose_origin
from dyntrain.training.session.job.options import Options
from dyntrain.training.session.job.reported import report_members
from dyntrain.training.session.job.roster import Roster
from dyntrain.training.session.job.round import Round
from dyntrain.training.session.job.stall import Stall
from dyntrain.training.session.job.trouble import FailureCounts


class Phase(Enum):
    RECOVERING = "recovering"  # a restarted coordinator waits for the members of the journaled generation
    WAITING = "waiting"  # no worker holds the state: the next generation starts from a safe state or commit
    PARKED = "parked"  # the members hold the state, outside any group, and wait for a generation that can be formed
    PREPARING = "preparing"  # the orders to form are sent; no member has begun, so all can be cancelled
    FORMING = "forming"  # the order to go is sent; members may be inside ps-lite, which cannot be cancelled
    TRAINING = "training"  # the members take steps, or wait at a boundary
    RELEASING = "releasing"  # a member is lost; the survivors free themselves
    OVER = "over"  # the job has finished or failed


@dataclass
class JobState:
    options: Options  # what the user has set
    transfer_token: Callable[[], str]  # returns a new secret, as pure code makes no secrets
    roster: Roster  # the job's nodes and workers
    since: float = 0.0  # start of the phase, or first check-in at a boundary
    phase: Phase = Phase.WAITING  # of the present generation
    round: Round = field(default_factory=Round)  # the present generation and its progress
    launch: Launch | None = None  # a person's launch, if the job waits for one
    number: int = 0  # number of the latest generation, counted over restarts
    loop: int = 0  # index of the script's present loop over epochs
    between_loops: bool = False  # whether some members have not reached the present loop yet
    starts: dict[int, Position] = field(default_factory=dict)  # first positions of the loops, except the first loop
    loops: dict[int, int] = field(default_factory=dict)  # loop of each generation after the first loop
    commit_loops: dict[str, int] = field(default_factory=dict)  # loop of each commit after the first loop
    script_ended: set[str] = field(default_factory=set)  # members whose script has no further loop
    position: Position = START  # position of the last boundary, or of the members' state
    commit: tuple[Position, str] | None = None  # newest commit: position and name
    earlier_commits: list[tuple[Position, str]] = field(default_factory=list)  # kept commits, oldest first
    began_from: tuple[Position, str] | None = None  # the commit loaded last, kept until the next load
    no_commit: str = ""  # why no commit is left, if there was one
    committer: str | None = None  # the member that writes and deletes commits
    committer_since: int = 0  # the first generation in which the committer writes
    lineage: Lineage = field(default_factory=Lineage)  # the generations whose steps still count
    unreadable_copies: set[tuple[str, str]] = field(default_factory=set)  # (instance, name) of damaged safe states
    void_until: int = 0  # after a restart, commits of generations up to this number are void
    target: Target | None = None  # the controller's last target: the members that it wants
    causes: dict[str, str] = field(default_factory=dict)  # reasons of instances' last changes, from the targets
    refused: Target | None = None  # the last target whose refusal was announced
    paused: SettlementReason | None = None  # why the job is paused
    paused_since: float = 0.0  # start of the pause
    trouble: FailureCounts = field(default_factory=FailureCounts)  # numbers of failures in a row
    sequence: int = 0  # number of the last report
    outcome: str = ""  # "finished" or "failed", after the job's end
    writer: str | None = None  # the member that writes the result of a finished job
    failure: str = ""  # why the job failed
    silenced: set[str] = field(default_factory=set)  # silenced rules of the script's checks that were announced
    stall: Stall | None = None  # the stall that was announced
    last_exception: tuple[int, str] | None = None  # the script's last exception: step, traceback
    epochs: int = 0  # number of epochs, equal on all workers; 0: no generation yet
    samples: int | None = None  # samples in an epoch; None: unknown, or divided by the script
    terms: dict[int, JobBegun] = field(default_factory=dict)  # the settings with which each loop over epochs began
    awaited: set[str] = field(default_factory=set)  # members that must still leave, after the job's end and a restart
    closed: bool = False  # whether the job is over and all workers have left

    def enter(self, phase: Phase, now: float) -> None:
        self.phase, self.since = phase, now

    def extend_deadlines(self, seconds: float) -> None:
        """Extend all of the job's deadlines by `seconds`."""
        self.since += seconds
        self.paused_since += seconds
        self.round.extend_deadlines(seconds)
        self.roster.extend_deadlines(seconds)

    def pause(self, reason: SettlementReason | None, now: float) -> None:
        if reason is not None and self.paused is None:
            self.paused_since = now
        self.paused = reason

    def record_terms(self, begun: JobBegun) -> None:
        """Record the settings on which all workers agree in the present loop over epochs."""
        self.terms[self.loop] = begun
        self.epochs, self.samples = begun.epochs or 0, None if begun.batching == MODULE else begun.samples

    def changed_terms(self, hello: WorkerHello) -> str | None:
        """Describe how the settings of the worker's script contradict the job's settings, or return None."""
        loop_terms = self.terms.get(hello.loop)
        if loop_terms is None or hello.loop != self.loop:
            return None
        done_epochs = self.commit[0].epoch if self.commit else 0
        return describe_changed_settings(hello, loop_terms, done_epochs)

    def is_current(self, instance: str, generation: int) -> bool:
        """Whether `generation` is the present generation, and the worker is a connected member."""
        job_generation = self.round.generation
        return job_generation is not None and generation == job_generation.number and instance in self.roster.members

    def members_present(self) -> list[str]:
        """The connected members, in the order of the generation's members."""
        return [instance_id for instance_id in self.round.instances if instance_id in self.roster.members]

    def record_commit(self, position: Position, name: str, generation: int) -> None:
        if loop := self.loops.get(generation):
            self.commit_loops[name] = loop
        if self.commit is not None:
            self.earlier_commits = [*self.earlier_commits, self.commit][1 - COMMITS_KEPT :]
        self.commit, self.no_commit = (position, name), ""

    def set_committer(self, instance: str, generation: int) -> None:
        """Record that the worker `instance` writes the commits from the given generation on.

        The worker also deletes the commits of other workers, except the commits to which the job may go back.
        """
        if instance != self.committer:
            self.committer, self.committer_since = instance, generation

    @property
    def kept_commits(self) -> tuple[str, ...]:
        """The names of the commits to which the job may go back, oldest first."""
        commits = [*self.earlier_commits, *([self.commit] if self.commit else ())]
        if self.began_from is not None and self.began_from not in commits:
            commits.insert(0, self.began_from)
        return tuple(name for _, name in commits)

    def choose_origin(self, ready: Mapping[str, WorkerHello]) -> Origin:
        """Choose from which state the next generation starts, if no worker holds the state in memory."""
        commit_loop = self.commit_loops.get(self.commit[1], 0) if self.commit else 0
        return choose_origin(self.commit, self.lineage, ready, self.unreadable_copies, self.loops, commit_loop)

    def drop_commit(self, reason: str) -> None:
        """Replace an unreadable newest commit by the previous commit, or finally by the commit that was loaded last."""
        assert self.commit is not None
        position, _ = self.commit
        if self.began_from == self.commit:
            self.began_from = None
        self.commit = self.earlier_commits.pop() if self.earlier_commits else self.began_from
        self.no_commit = reason if self.commit is None and position.step else ""

    @property
    def done_fraction(self) -> float | None:
        """The fraction of all epochs that is done, or None if the number of epochs is unknown or endless."""
        if self.outcome == "finished":
            return 1.0
        if not self.epochs or self.epochs >= ENDLESS:
            return None
        position = self.furthest_position
        epoch_fraction = min(1.0, position.offset / self.samples) if self.samples else 0.0
        return min(1.0, (position.epoch + epoch_fraction) / self.epochs)

    @property
    def furthest_position(self) -> Position:
        """The position of the worker that has applied the most steps."""
        report = max(self.round.progress.values(), key=lambda report: report.position.step, default=None)
        return report.position if report and report.position.step >= self.position.step else self.position

    def report(self) -> JobReport:
        """Make the job report for the controller; the report lists a leaving member until the member has left."""
        state_name = {
            Phase.WAITING: "starting" if self.number == 0 else "paused",
            Phase.PARKED: "paused" if self.paused else "running",
            Phase.OVER: "paused" if self.options.waits else self.outcome or "finished",
        }.get(self.phase, "running")  # also while RECOVERING: the members probably train
        generation = self.round.generation if self.phase is not Phase.OVER else None
        position, epochs = self.furthest_position, self.epochs or self.roster.epochs
        return JobReport(
            cluster=self.options.cluster,
            job=self.options.job,
            state=state_name,
            started_at=self.options.started_at,
            sequence=self.sequence,
            generation=self.number,
            revision=self.target.revision if self.target else 0,
            members=report_members(generation, self.round.active, self.roster.leaving, self.round.progress),
            epoch=position.epoch,
            epochs=0 if epochs >= ENDLESS else epochs,
            step=position.step,
            samples_per_second=self.round.pace * len(self.round.active) if state_name == "running" else 0.0,
            reason=self._idle_reason[:MAX_TEXT_LENGTH],
            traceback=self.last_exception[1][-MAX_TEXT_LENGTH:]
            if self.last_exception and position.step <= self.last_exception[0]
            else "",
        )

    @property
    def _idle_reason(self) -> str:
        """The reason why the job does not train, as a text for users.

        A cluster that waits for launches is never reported as finished, as the controller would then release the
        cluster's nodes.
        """
        if self.options.waits and self.phase is Phase.OVER:
            return (
                f"the launch has {self.outcome}; {self.failure}" if self.failure else f"the launch has {self.outcome}"
            )
        if self.options.waits and self.launch is None:
            return "waits for a launch on the master"
        return self.failure or (self.paused.value if self.paused else "")
