"""The coordinator's journal: the decisions that must survive it, one model a kind.

A coordinator that comes back, or takes over, goes on from these records alone (`session/recovery/from_journal.py`), and
the audit reads them to know which samples counted. Times are seconds since the epoch.
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
    """What all workers agreed on when the first generation was settled, of the job or of a further loop."""

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
    """A person launched this on a cluster that waited for it; the environment is in the clear, as the volume is the
    job's own.
    """

    kind: Literal["launched"] = "launched"
    launch: Launch
    at: float


class GenerationSettled(_Entry):
    """A generation was settled, before anybody was told of it."""

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
    kind: Literal["commit"] = "commit"
    generation: int
    position: Position
    name: str


class CommitFoundUnreadable(_Entry):
    kind: Literal["commit_unreadable"] = "commit_unreadable"
    name: str
    position: Position
    instead: Position | None  # of the commit before it, which takes its place
    reason: str
    at: float


class TakenBack(_Entry):
    """The generation was withdrawn before anybody had begun to form it, and nobody holds the state."""

    kind: Literal["taken_back"] = "taken_back"
    generation: int
    reason: str
    at: float


class MembersGivenUp(_Entry):
    """These members of the generation do not count any more, before the others are freed without them: one that lives
    all the same may end a step with zeros in place of gradients, and be ahead of everybody with it.
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
    void_copies: bool = False  # what was kept when it was formed differed from worker to worker


class LoopFinished(_Entry):
    """A loop over epochs has ended at `reached`, and the script goes on to the next one or to its end."""

    kind: Literal["loop"] = "loop"
    loop: int  # the next one
    reached: Position
    holders: tuple[str, ...]  # members whose memory holds the state
    writer: str | None
    at: float


class JobFinished(_Entry):
    kind: Literal["finished"] = "finished"
    position: Position
    at: float
    writer: str | None = Field(None, exclude_if=lambda value: value is None)  # whose script writes what is for all


class JobFailed(_Entry):
    kind: Literal["failed"] = "failed"
    reason: str
    at: float


class TermBegun(_Entry):
    """The first record of a coordinator that was nominated: which node it is on, and how many bytes of each earlier
    journal count.
    """

    kind: Literal["term"] = "term"
    term: int
    instance: str
    of: dict[str, int]


class JobResumed(_Entry):
    """A person goes on with the job, which was interrupted or has failed, from what is safe outside the workers: none
    of its processes is left.
    """

    kind: Literal["resumed"] = "resumed"
    at: float


class JobClosed(_Entry):
    """The job is over, and the controller has been told. The last record, unless somebody resumes the job."""

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
