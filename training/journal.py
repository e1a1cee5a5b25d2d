"""The coordinator's journal: decisions that must survive the coordinator's process, with a class for each kind.

A coordinator that is restarted, or takes the job over, continues from the journal's records alone
(`session/recovery/from_journal.py`). The audit reads the journal's records to know which steps are valid. A generation
is the group of workers between two changes of the membership; a commit is a checkpoint. Times are seconds since 1970.
"""

from __future__ import annotations

from typing import Annotated, Literal

from dyntrain.training.protocol.messages import Position
from dyntrain.training.protocol.node_messages import Launch
from dyntrain.training.records import Format, Record
from pydantic import Field, TypeAdapter

VERSION = 1  # version of the journal's format


class _Entry(Record):
    version: int = VERSION  # version of the journal's format


class JobBegun(_Entry):
    """The settings on which all workers agreed when the job, or a further loop over epochs, began."""

    kind: Literal["job"] = "job"
    job: str  # name of the job
    epochs: int | None = None  # number of epochs, over the whole job
    samples: int | None = None  # samples in an epoch
    drawn_from: int | None = Field(None, exclude_if=lambda value: value is None)  # dataset samples, if epochs omit some
    global_batch: int  # samples of a step, over all workers
    seed: int  # seed of the job's random numbers
    batching: str  # how batch and rate follow the number of workers
    layout: str | None = Field(None, exclude_if=lambda value: value is None)  # digest of the parameters' shapes
    from_epoch: int = Field(0, exclude_if=lambda value: value == 0)  # first epoch of a further loop
    at: float  # seconds since 1970


class JobLaunched(_Entry):
    """A user launched a command on a cluster that waited for a launch.

    The launch's environment variables are stored in clear text, as the volume belongs to the job.
    """

    kind: Literal["launched"] = "launched"
    launch: Launch  # the launch's command and settings
    at: float  # seconds since 1970


class GenerationSettled(_Entry):
    """The members of a generation were decided; this record is written before any worker gets an order to form."""

    kind: Literal["generation"] = "generation"
    number: int  # number of the generation
    members: tuple[str, ...]  # in the order of their ranks
    position: Position  # position of the generation's first step
    commit: str | None = None  # the commit from which the generation starts
    safe: str | None = None  # the node from whose safe state the generation starts
    at: float  # seconds since 1970
    pids: dict[str, int]  # process id of each member
    holders: tuple[str, ...]  # members whose memory holds the state
    hosts: dict[str, int]  # nodes with ps-lite processes, and the number of their bootstrap's run
    loop: int = Field(0, exclude_if=lambda value: value == 0)  # index of the script's loop over epochs


class CommitWritten(_Entry):
    """A commit was written completely."""

    kind: Literal["commit"] = "commit"
    generation: int  # number of the generation that wrote it
    position: Position  # position of the commit's state
    name: str  # name of the commit


class CommitFoundUnreadable(_Entry):
    """A commit cannot be read, and an earlier commit, if any, takes its place."""

    kind: Literal["commit_unreadable"] = "commit_unreadable"
    name: str  # name of the commit
    position: Position  # position of the unreadable commit
    instead: Position | None  # position of the previous commit, which takes its place
    reason: str  # why the commit cannot be read
    at: float  # seconds since 1970


class TakenBack(_Entry):
    """The generation was cancelled before any worker began to form it, and no worker's memory has the state."""

    kind: Literal["taken_back"] = "taken_back"
    generation: int  # number of the cancelled generation
    reason: str  # why it was cancelled
    at: float  # seconds since 1970


class MembersGivenUp(_Entry):
    """The `members` of the generation are lost, and will not be accepted as members again.

    The record is written before the other members are freed from the current step. If a given-up member is still alive,
    it may complete the step with zeros in place of gradients, before the other members.
    """

    kind: Literal["given_up"] = "given_up"
    generation: int  # number of the generation
    members: tuple[str, ...]  # the lost members
    at: float  # seconds since 1970


class Restarted(_Entry):
    """All workers of the generation were restarted; steps beyond the last commit or safe state are void."""

    kind: Literal["restart"] = "restart"
    generation: int  # number of the generation
    reason: str  # why its workers were restarted
    at: float  # seconds since 1970
    void_copies: bool = False  # whether safe states are not used, as they differed between workers


class LoopFinished(_Entry):
    """A loop over epochs ended at `reached`; the script continues with the next loop, or ends."""

    kind: Literal["loop"] = "loop"
    loop: int  # number of the next loop
    reached: Position  # position at the loop's end
    holders: tuple[str, ...]  # members whose memory holds the state
    writer: str | None  # member whose script writes files for all workers
    at: float  # seconds since 1970


class JobFinished(_Entry):
    """The job has finished successfully."""

    kind: Literal["finished"] = "finished"
    position: Position  # position at the job's end
    at: float  # seconds since 1970
    writer: str | None = Field(None, exclude_if=lambda value: value is None)  # member whose script writes files


class JobFailed(_Entry):
    """The job has failed for the given reason."""

    kind: Literal["failed"] = "failed"
    reason: str  # why the job failed
    at: float  # seconds since 1970


class TermBegun(_Entry):
    """First record in the journal of a nominated coordinator.

    The record names the coordinator's node, and how many bytes of each earlier journal are valid (`of`).
    """

    kind: Literal["term"] = "term"
    term: int  # number of the nomination
    instance: str  # EC2 instance id of the node
    of: dict[str, int]  # valid bytes of each earlier journal


class JobResumed(_Entry):
    """A user resumes an interrupted or failed job from its safe state; none of the job's processes is left."""

    kind: Literal["resumed"] = "resumed"
    at: float  # seconds since 1970


class JobClosed(_Entry):
    """The job is over, and the job's end was reported to the controller.

    Further records follow only if a user resumes the job.
    """

    kind: Literal["closed"] = "closed"
    at: float  # seconds since 1970


Entry = (
    JobBegun
    | JobLaunched
    | GenerationSettled
    | CommitWritten
    | CommitFoundUnreadable
    | TakenBack
    | MembersGivenUp
    | Restarted
    | LoopFinished
    | JobFinished
    | JobFailed
    | JobResumed
    | TermBegun
    | JobClosed
)
FORMAT: Format[Entry] = Format("journal", VERSION, TypeAdapter(Annotated[Entry, Field(discriminator="kind")]))
