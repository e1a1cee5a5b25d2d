"""The coordinator's journal: its decisions that must survive it, one model a kind.

A coordinator that is restarted, or takes over, continues from these records alone (`session/recovery/from_journal.py`),
and the audit reads them to know which samples counted. Times are seconds since the epoch.
"""

from __future__ import annotations

from typing import Annotated, Literal

from dyntrain.training.protocol.messages import Position
from dyntrain.training.protocol.node_messages import Launch
from dyntrain.training.records import Format, Record
from pydantic import Field, TypeAdapter

VERSION = 1


class _Entry(Record):
    version: int = VERSION


class JobBegun(_Entry):
    """What all workers agreed on at the first generation of the job or of a further loop."""

    kind: Literal["job"] = "job"
    job: str
    epochs: int | None = None
    samples: int | None = None  # in an epoch
    drawn_from: int | None = Field(None, exclude_if=lambda value: value is None)  # so many, where epochs leave some out
    global_batch: int
    seed: int
    batching: str
    layout: str | None = Field(None, exclude_if=lambda value: value is None)  # digest of the parameters' shapes
    from_epoch: int = Field(0, exclude_if=lambda value: value == 0)  # of a further loop over epochs, the job's epoch
    at: float


class JobLaunched(_Entry):
    """A person launched this on a cluster that waited for it; the environment is in clear text: the volume is the job's
    own.
    """

    kind: Literal["launched"] = "launched"
    launch: Launch
    at: float


class GenerationSettled(_Entry):
    """A generation was settled, recorded before any worker is informed."""

    kind: Literal["generation"] = "generation"
    number: int
    members: tuple[str, ...]
    position: Position  # of its first step
    commit: str | None = None  # the commit that it starts from
    safe: str | None = None  # the node whose safe state it starts from
    at: float
    pids: dict[str, int]  # of the members' processes
    holders: tuple[str, ...]  # members whose memory holds the state
    hosts: dict[str, int]  # base nodes with its ps-lite processes, and the attempt that they run in
    loop: int = Field(0, exclude_if=lambda value: value == 0)  # of the script's loops over epochs


class CommitWritten(_Entry):
    """A commit is complete."""

    kind: Literal["commit"] = "commit"
    generation: int
    position: Position
    name: str


class CommitFoundUnreadable(_Entry):
    """A commit cannot be read, and an earlier one takes its place."""

    kind: Literal["commit_unreadable"] = "commit_unreadable"
    name: str
    position: Position
    instead: Position | None  # of the commit before it, which takes its place
    reason: str
    at: float


class TakenBack(_Entry):
    """The generation was withdrawn before any worker began to form it, and none holds the state."""

    kind: Literal["taken_back"] = "taken_back"
    generation: int
    reason: str
    at: float


class MembersGivenUp(_Entry):
    """These members of the generation no longer count, recorded before the others are released without them.

    One that is still alive may end a step with zeros in place of gradients, and get ahead of the others with it.
    """

    kind: Literal["given_up"] = "given_up"
    generation: int
    members: tuple[str, ...]
    at: float


class Restarted(_Entry):
    """All workers of the generation were ended; what it trained beyond its last commit or safe state is void."""

    kind: Literal["restart"] = "restart"
    generation: int
    reason: str
    at: float
    void_copies: bool = False  # the states kept when it was formed differed between workers


class LoopFinished(_Entry):
    """A loop over epochs ended at `reached`; the script continues with the next one, or ends."""

    kind: Literal["loop"] = "loop"
    loop: int  # the next one
    reached: Position
    holders: tuple[str, ...]  # members whose memory holds the state
    writer: str | None
    at: float


class JobFinished(_Entry):
    """The job has finished."""

    kind: Literal["finished"] = "finished"
    position: Position
    at: float
    writer: str | None = Field(None, exclude_if=lambda value: value is None)  # whose script writes what is for all


class JobFailed(_Entry):
    """The job has failed."""

    kind: Literal["failed"] = "failed"
    reason: str
    at: float


class TermBegun(_Entry):
    """First record of a nominated coordinator: its node, and how many bytes of each earlier journal are valid."""

    kind: Literal["term"] = "term"
    term: int
    instance: str
    of: dict[str, int]


class JobResumed(_Entry):
    """A person resumes an interrupted or failed job from its safe state; none of its processes is left."""

    kind: Literal["resumed"] = "resumed"
    at: float


class JobClosed(_Entry):
    """The job is over, and the controller knows. The last record, unless a person resumes the job."""

    kind: Literal["closed"] = "closed"
    at: float


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
