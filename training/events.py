"""Schema of the file `events.jsonl`, which contains a job's events, one JSON object a line.

    {"version": 1, "at": 1767225600.5, "event": "joined", "instance": "i-...", "pid": 77, "generation": 2, "epoch": 1}

Each line's field `event` names the kind of the event, which is a class in this module. The fields `at` and `deadline`
are seconds since 1970, all other times are durations in seconds. The field `step` is the number of steps since the job
began, and `offset` is the number of samples within the epoch (`Position`). The coordinator writes the file
(`dyntrain.training.ledger.EventLog`). Programs that read the file need neither MXNet nor a running job.

A generation is the group of workers between two changes of the membership. A boundary is a point between two steps
where the membership may change. A commit is a checkpoint; a safe state is a node's copy of the state in memory.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from dyntrain.training.protocol.messages import Position
from dyntrain.training.records import Format, Record
from pydantic import Field, TypeAdapter

VERSION = 1  # version of the events' schema

Instance = Annotated[str, Field(description="EC2 instance id of the node")]
Pid = Annotated[int, Field(description="process id of the worker, on its node")]
GenerationNumber = Annotated[int, Field(description="number of the generation, counted from 1 over the whole job")]
Cause = Annotated[str, Field(description="the cause, as a sentence for people")]
Instances = Annotated[tuple[str, ...], Field(description="EC2 instance ids, in the order of the generation")]
Phases = Annotated[dict[str, float], Field(description="seconds of each named part, on the slowest worker")]
StepPosition = Annotated[Position, Field(description="epoch, samples done in the epoch, and steps since the job began")]


class _Event(Record):
    version: int = Field(VERSION, description="version of this schema")
    at: float = Field(description="when the coordinator learned of the event, or caused it: seconds since 1970")


# ---- generations


class Forming(_Event):
    """The members of a new generation are decided, and are ordered to prepare for this generation."""

    event: Literal["forming"] = "forming"
    number: GenerationNumber  # of the new generation
    members: Instances  # of the new generation
    position: StepPosition  # where the generation starts
    commit: str | None = Field(None, description="commit from which the generation starts; null: from another state")
    safe: str | None = Field(None, description="instance from whose safe state the generation starts")
    cause: Cause  # why the membership changes
    joining: Instances  # members that are new
    leaving: Instances  # instances that must leave


class Formed(_Event):
    """All members have joined the generation with equal states, and continue the training."""

    event: Literal["formed"] = "formed"
    generation: GenerationNumber
    members: Instances  # of the generation
    digest: str = Field(description="checksum of the state, equal on all members")
    phases: Phases  # parts in sequence
    background: Phases  # parts in parallel to `phases`


class TakenBack(_Event):
    """The generation was cancelled before any worker began to form it; no step is lost."""

    event: Literal["taken_back"] = "taken_back"
    generation: GenerationNumber
    reason: Cause  # why the generation is cancelled


class Restart(_Event):
    """All worker processes of the generation are stopped; the next generation starts from a safe state or a commit."""

    event: Literal["restart"] = "restart"
    generation: GenerationNumber
    reason: Cause  # why the workers are restarted
    commit: Position | None = Field(description="position of the last commit; null: there is none")


class Releasing(_Event):
    """A worker was lost during training: the other workers are being freed from the incomplete step."""

    event: Literal["releasing"] = "releasing"
    instance: str = Field(description="instances of the lost workers, separated by commas, or words in their place")
    generation: GenerationNumber
    reason: Cause  # how the worker was lost


class Released(_Event):
    """All surviving workers are freed from the incomplete step; steps beyond `position` are void."""

    event: Literal["released"] = "released"
    generation: GenerationNumber
    position: StepPosition  # after the last valid step
    seconds: float = Field(description="from the loss until the last surviving worker was free")


class Pause(_Event):
    """All members have made the generation's first step.

    The event measures how long the earlier members paused their training.
    """

    event: Literal["pause"] = "pause"
    generation: GenerationNumber
    seconds: float = Field(
        description="from the last step before the change of membership to the next step, less one step"
    )
    phases: Phases  # parts of the pause


class Segment(_Event):
    """The workers have trained from one boundary to the next; the event summarizes their training."""

    event: Literal["segment"] = "segment"
    generation: GenerationNumber
    workers: int = Field(description="number of workers that took part")
    start: Position = Field(alias="from", description="position at the previous boundary")
    end: Position = Field(alias="to", description="position at this boundary; offset 0: an epoch has ended")
    epoch: int = Field(description="the epoch of these samples, counted from 0")
    samples: int = Field(description="number of samples, over all workers")
    seconds: float = Field(description="time of the slowest worker, without its wait at the boundary")
    pids: dict[str, int] = Field(description="process id of each instance's worker")
    metrics: dict[str, float] = Field(description="mean of each metric over all samples; NaN if it diverged")

    @property
    def rate(self) -> float:
        """Samples a second."""
        return self.samples / self.seconds if self.seconds else 0.0


# ---- workers


class Joined(_Event):
    """The worker trained for the first time."""

    event: Literal["joined"] = "joined"
    instance: Instance
    pid: Pid
    generation: GenerationNumber
    epoch: int = Field(description="the epoch in which the worker joined, counted from 0")


class Left(_Event):
    """The worker left the job, as the coordinator ordered."""

    event: Literal["left"] = "left"
    instance: Instance
    pid: Pid
    generation: GenerationNumber


class WorkerStarted(_Event):
    """The node runs a worker process that is not connected to the coordinator yet."""

    event: Literal["worker_started"] = "worker_started"
    instance: Instance
    pid: Pid
    spare: bool = Field(description="whether the process had been started in advance, as a warm spare")


class WorkerReady(_Event):
    """The worker is connected and waits for the next generation."""

    event: Literal["worker_ready"] = "worker_ready"
    instance: Instance
    pid: Pid
    seconds: float | None = Field(None, description="since its node reported the process; null: unknown")
    spare: bool | None = Field(None, description="whether the process was a warm spare; null: unknown")


class WorkerLost(_Event):
    """The worker is lost, as its process has ended or its connection is broken."""

    event: Literal["worker_lost"] = "worker_lost"
    instance: Instance
    pid: Pid
    reason: Cause  # how the worker was lost


class WorkerRefused(_Event):
    """The worker cannot train with the other workers, as its script or arguments differ."""

    event: Literal["worker_refused"] = "worker_refused"
    instance: Instance
    reason: Cause  # what differs


# ---- nodes


class NodeReady(_Event):
    """A node's supervisor, the program that runs its workers, is connected."""

    event: Literal["node_ready"] = "node_ready"
    instance: Instance
    attempt: int = Field(description="number of the bootstrap's run on this node, counted from 1")
    address: str = Field("", description="the node's address; empty: unknown", exclude_if=lambda address: not address)
    base: bool = Field(False, description="whether the node is a base node", exclude_if=lambda base: not base)


class NodeLost(_Event):
    """The connection of a node's supervisor is broken; the node's worker may still train."""

    event: Literal["node_lost"] = "node_lost"
    instance: Instance


class NodeNotice(_Event):
    """The cloud provider has announced an interruption of the node's machine, or that it takes the machine back."""

    event: Literal["node_notice"] = "node_notice"
    instance: Instance
    kind: str = Field(description="kind of the interruption: spot, rebalance, maintenance ...")
    deadline: float = Field(description="time of the interruption, in seconds since 1970")


class Stalled(_Event):
    """Workers have waited for other workers for over half a minute.

    Each stall (time of waiting) is written once.
    """

    event: Literal["stalled"] = "stalled"
    generation: GenerationNumber
    step: int = Field(description="steps since the job began, on the most advanced worker")
    stalled: Instances = Field(description="instances for which others wait; empty: all wait inside the step")
    waiting: Instances = Field(description="instances whose workers wait")
    reason: Cause  # who waits for whom


class StallOver(_Event):
    """A stall has ended: no worker waits for the workers on the `stalled` instances any more."""

    event: Literal["stall_over"] = "stall_over"
    stalled: Instances = Field(description="instances for which other workers waited")
    seconds: float = Field(description="duration of the stall")


class CoolingDown(_Event):
    """The node's worker failed too often and is not restarted for a while."""

    event: Literal["cooling_down"] = "cooling_down"
    instance: Instance
    seconds: float = Field(description="duration of the cool-down, from `at` on")
    reason: Cause  # the worker's failures


class Readmitted(_Event):
    """The node's cool-down is over, and its worker is started again."""

    event: Literal["readmitted"] = "readmitted"
    instance: Instance


class ScriptFailed(_Event):
    """The training script raised an exception; an exception that several workers raise is written only once."""

    event: Literal["script_failed"] = "script_failed"
    instance: Instance
    step: int = Field(description="steps since the job began")
    traceback: str = Field(description="as Python prints it")


class ChecksSilenced(_Event):
    """Rules of the script's checks found problems, but were silenced by a comment, the script or its launch."""

    event: Literal["checks_silenced"] = "checks_silenced"
    instance: Instance
    rules: dict[str, str] = Field(description="how each rule was silenced, by its code or by `all`")


# ---- commits


class CommitFailed(_Event):
    """A commit could not be written; training continues, and the previous commit remains valid."""

    event: Literal["commit_failed"] = "commit_failed"
    instance: Instance
    step: int = Field(description="steps since the job began")
    reason: Cause  # why the commit was not written


class ResultsUploaded(_Event):
    """New commits, output of the script and TensorBoard's curves have been uploaded to the S3 bucket."""

    event: Literal["results_uploaded"] = "results_uploaded"
    files: int = Field(description="number of new or changed files")
    size: int = Field(description="bytes of these files")
    seconds: float = Field(description="duration of the upload")


class ResultsNotUploaded(_Event):
    """An upload of results failed; training continues.

    The upload is tried again after a minute, after the next epoch and at the job's end.
    """

    event: Literal["results_not_uploaded"] = "results_not_uploaded"
    reason: Cause  # why the upload failed


class CommitUnreadable(_Event):
    """A commit from which a generation was to start is missing or damaged."""

    event: Literal["commit_unreadable"] = "commit_unreadable"
    name: str = Field(description="name of the commit")
    position: StepPosition  # of the unreadable commit
    instead: Position | None = Field(description="position of the commit that takes its place; null: there is none")
    reason: Cause  # why the commit cannot be read


class SafeStateUnreadable(_Event):
    """A safe state from which a generation was to start is missing or damaged."""

    event: Literal["safe_state_unreadable"] = "safe_state_unreadable"
    instance: Instance
    step: int = Field(description="steps since the job began")
    reason: Cause  # why the safe state cannot be read


# ---- the coordinator and its job


class Recovered(_Event):
    """A restarted coordinator has connections to all remaining workers, and continues the job."""

    event: Literal["recovered"] = "recovered"
    generation: GenerationNumber
    stages: dict[str, str] = Field(description="stage of each instance's worker (`WorkerHello.stage`)")
    lost: Instances  # whose workers were lost


class Takeover(_Event):
    """Another node's coordinator has taken the job over."""

    event: Literal["takeover"] = "takeover"
    instance: Instance
    former: str = Field(description="the instance that held the job before")
    generation: int = Field(description="the last generation of the former coordinator; 0: there was none")


class TargetRefused(_Event):
    """A published target (the members that the controller wants) contradicts the accepted target and is ignored."""

    event: Literal["target_refused"] = "target_refused"
    revision: int = Field(description="revision of the ignored target and of the target in force")
    stage: str | None = Field(description="stage of the controller that wrote the ignored target; null: unknown")
    reason: Cause  # what contradicts the accepted target


class LoopFinished(_Event):
    """A loop over epochs has ended; the script continues with another loop, or ends."""

    event: Literal["loop_finished"] = "loop_finished"
    loop: int = Field(description="number of the next loop, counted from 0")
    position: StepPosition  # at the end of the loop


class Finished(_Event):
    """The job has finished successfully."""

    event: Literal["finished"] = "finished"
    position: StepPosition  # at the end of the job


class Failed(_Event):
    """The job has failed for the given reason."""

    event: Literal["failed"] = "failed"
    reason: Cause  # why the job failed


Event = (
    Forming
    | Formed
    | TakenBack
    | Restart
    | Releasing
    | Released
    | Pause
    | Segment
    | Joined
    | Left
    | WorkerStarted
    | WorkerReady
    | WorkerLost
    | WorkerRefused
    | NodeReady
    | NodeLost
    | NodeNotice
    | Stalled
    | StallOver
    | CoolingDown
    | Readmitted
    | ScriptFailed
    | ChecksSilenced
    | TargetRefused
    | CommitFailed
    | ResultsUploaded
    | ResultsNotUploaded
    | CommitUnreadable
    | SafeStateUnreadable
    | Recovered
    | Takeover
    | LoopFinished
    | Finished
    | Failed
)
_FORMAT: Format[Event] = Format("event log", VERSION, TypeAdapter(Annotated[Event, Field(discriminator="event")]))


def parse(line: dict[str, Any], where: object) -> Event:
    """Parse an event from a line of the file `where`.

    Raises `records.Unreadable`, whose message says what to do.
    """
    return _FORMAT.parse(line, where)
