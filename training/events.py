"""Schema of `events.jsonl`: what happened in a job, for people and programs, one JSON object a line.

    {"version": 1, "at": 1767225600.5, "event": "joined", "instance": "i-...", "pid": 77, "generation": 2, "epoch": 1}

`event` names the model of the line; `parse` reads it. All times are in seconds: `at` and `deadline` since the epoch
(1970), all others are durations. `step` counts steps since the job began, `offset` samples within the epoch
(`Position`). The coordinator writes the file (`dyntrain.training.ledger.EventLog`); readers need neither MXNet nor a
running job.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from dyntrain.training.protocol.messages import Position
from dyntrain.training.records import Format, Record
from pydantic import Field, TypeAdapter

VERSION = 1

Instance = Annotated[str, Field(description="EC2 instance id of the node")]
Pid = Annotated[int, Field(description="process id of the worker, on its node")]
Number = Annotated[int, Field(description="number of the generation, counted from 1 over the whole job")]
Why = Annotated[str, Field(description="the cause, a sentence for people")]
Instances = Annotated[tuple[str, ...], Field(description="EC2 instance ids, in the order of the generation")]
Phases = Annotated[dict[str, float], Field(description="name of the part: seconds that its slowest worker took")]
Where = Annotated[Position, Field(description="epoch, samples into it, and steps since the job began")]


class _Event(Record):
    version: int = Field(VERSION, description="of this schema")
    at: float = Field(description="when it was decided or heard: seconds since the epoch")


# ---- generations


class Forming(_Event):
    """A generation is settled and its members are ordered to prepare."""

    event: Literal["forming"] = "forming"
    number: Number
    members: Instances
    position: Where
    commit: str | None = Field(None, description="name of the commit that it starts from; null: from memory, or afresh")
    safe: str | None = Field(None, description="instance whose safe state it starts from")
    cause: Why
    joining: Instances
    leaving: Instances


class Formed(_Event):
    """All members are in the generation with equal state, and continue."""

    event: Literal["formed"] = "formed"
    generation: Number
    members: Instances
    digest: str = Field(description="checksum of the state, equal on all members")
    phases: Phases
    background: Phases


class TakenBack(_Event):
    """The generation was withdrawn before any worker began to form it: it cost nothing."""

    event: Literal["taken_back"] = "taken_back"
    generation: Number
    reason: Why


class Restart(_Event):
    """All workers of the generation are ended; the next one starts from the state that is safe outside them."""

    event: Literal["restart"] = "restart"
    generation: Number
    reason: Why
    commit: Position | None = Field(description="position of the last commit; null: there is none")


class Releasing(_Event):
    """A worker was lost while the others trained: they are being released from its step."""

    event: Literal["releasing"] = "releasing"
    instance: str = Field(description="instances that were lost, separated by commas; or who is meant, in words")
    generation: Number
    reason: Why


class Released(_Event):
    """All survivors are released; what they trained beyond `position` is void."""

    event: Literal["released"] = "released"
    generation: Number
    position: Where
    seconds: float = Field(description="from the loss to the last survivor's freedom")


class Pause(_Event):
    """All members have made their first step in the generation; how long the survivors could not train."""

    event: Literal["pause"] = "pause"
    generation: Number
    seconds: float = Field(description="from the last step before the change to the first one after it, less one step")
    phases: Phases


class Segment(_Event):
    """What was trained between two boundaries, merged over all workers."""

    event: Literal["segment"] = "segment"
    generation: Number
    workers: int = Field(description="how many took part")
    start: Position = Field(alias="from", description="position at the boundary before")
    end: Position = Field(alias="to", description="position at this boundary; offset 0: an epoch has ended")
    epoch: int = Field(description="the epoch that was trained on, counted from 0")
    samples: int = Field(description="samples that were trained on, by all together")
    seconds: float = Field(description="what the slowest worker took, without waiting at the boundary")
    pids: dict[str, int] = Field(description="instance: process id of its worker")
    metrics: dict[str, float] = Field(
        description="name: mean over all samples, in the script's own unit; NaN once it diverged"
    )

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
    generation: Number
    epoch: int = Field(description="the epoch that it came into, counted from 0")


class Left(_Event):
    """The worker left the job by order."""

    event: Literal["left"] = "left"
    instance: Instance
    pid: Pid
    generation: Number


class WorkerStarted(_Event):
    """The node runs a worker process, which has not connected yet."""

    event: Literal["worker_started"] = "worker_started"
    instance: Instance
    pid: Pid
    spare: bool = Field(description="a warm spare took over, nothing had to be started")


class WorkerReady(_Event):
    """The worker is connected and stands by for the next generation."""

    event: Literal["worker_ready"] = "worker_ready"
    instance: Instance
    pid: Pid
    seconds: float | None = Field(None, description="since its node said that it runs; null: not known")
    spare: bool | None = Field(None, description="as in worker_started; null: not known")


class WorkerLost(_Event):
    """The worker's process or its connection is gone."""

    event: Literal["worker_lost"] = "worker_lost"
    instance: Instance
    pid: Pid
    reason: Why


class WorkerRefused(_Event):
    """The worker cannot train with the others: another script, or other arguments."""

    event: Literal["worker_refused"] = "worker_refused"
    instance: Instance
    reason: Why


# ---- nodes


class NodeReady(_Event):
    """A node's supervisor is connected."""

    event: Literal["node_ready"] = "node_ready"
    instance: Instance
    attempt: int = Field(description="which life of its bootstrap this is, counted from 1")
    address: str = Field(
        "", description="at which the others reach it; empty: not known", exclude_if=lambda address: not address
    )
    base: bool = Field(False, description="it is a base node", exclude_if=lambda base: not base)


class NodeLost(_Event):
    """The connection of a node's supervisor is gone; its worker may still train."""

    event: Literal["node_lost"] = "node_lost"
    instance: Instance


class NodeNotice(_Event):
    """The node's machine will be taken away."""

    event: Literal["node_notice"] = "node_notice"
    instance: Instance
    kind: str = Field(description="who takes it: spot, rebalance, maintenance ...")
    deadline: float = Field(description="when, in seconds since the epoch")


class Stalled(_Event):
    """Workers have waited for others for over half a minute. Written once, until it is over or a worker is lost."""

    event: Literal["stalled"] = "stalled"
    generation: Number
    step: int = Field(description="steps since the job began that somebody has done")
    stalled: Instances = Field(description="whom the others wait for; none: all wait inside the step")
    waiting: Instances = Field(description="who waits")
    reason: Why


class StallOver(_Event):
    """No worker waits for them any more."""

    event: Literal["stall_over"] = "stall_over"
    stalled: Instances = Field(description="whom the others have waited for")
    seconds: float = Field(description="how long they waited")


class CoolingDown(_Event):
    """The node's worker failed too often and is not restarted for a while."""

    event: Literal["cooling_down"] = "cooling_down"
    instance: Instance
    seconds: float = Field(description="how long, from `at` on")
    reason: Why


class Readmitted(_Event):
    """The node's cool-down is over."""

    event: Literal["readmitted"] = "readmitted"
    instance: Instance


class ScriptFailed(_Event):
    """The training script raised; written once, even if several workers raised it, or repeatedly."""

    event: Literal["script_failed"] = "script_failed"
    instance: Instance
    step: int = Field(description="steps since the job began")
    traceback: str = Field(description="as Python prints it")


class ChecksSilenced(_Event):
    """Rules of the script's checks apply but are silenced, by a line, the script or its launch."""

    event: Literal["checks_silenced"] = "checks_silenced"
    instance: Instance
    rules: dict[str, str] = Field(description="code of a rule, or all: how it was silenced")


# ---- commits


class CommitFailed(_Event):
    """A commit could not be written; training goes on, and the commit before it stands."""

    event: Literal["commit_failed"] = "commit_failed"
    instance: Instance
    step: int = Field(description="steps since the job began")
    reason: Why


class ResultsUploaded(_Event):
    """New commits, output of the script and TensorBoard's curves are in the bucket."""

    event: Literal["results_uploaded"] = "results_uploaded"
    files: int = Field(description="how many were new, or had changed")
    size: int = Field(description="their bytes")
    seconds: float = Field(description="that it took")


class ResultsNotUploaded(_Event):
    """An upload failed; training continues, with a retry after a minute, after the next epoch and at the job's end."""

    event: Literal["results_not_uploaded"] = "results_not_uploaded"
    reason: Why


class CommitUnreadable(_Event):
    """A commit that was to be loaded is gone or damaged."""

    event: Literal["commit_unreadable"] = "commit_unreadable"
    name: str = Field(description="of the commit")
    position: Where
    instead: Position | None = Field(description="position of the commit that takes its place; null: there is none")
    reason: Why


class SafeStateUnreadable(_Event):
    """A safe state that was to be loaded is gone or damaged."""

    event: Literal["safe_state_unreadable"] = "safe_state_unreadable"
    instance: Instance
    step: int = Field(description="steps since the job began")
    reason: Why


# ---- the coordinator and its job


class Recovered(_Event):
    """A restarted coordinator has heard from all remaining workers, and continues."""

    event: Literal["recovered"] = "recovered"
    generation: Number
    stages: dict[str, str] = Field(description="instance: how far its worker was, as in `WorkerHello.stage`")
    lost: Instances


class Takeover(_Event):
    """The coordinator of another node has taken over the job."""

    event: Literal["takeover"] = "takeover"
    instance: Instance
    former: str = Field(description="the instance that held the job before")
    generation: int = Field(description="the last generation of the former coordinator; 0: it had settled none")


class TargetRefused(_Event):
    """A published membership contradicts the one in force and is ignored."""

    event: Literal["target_refused"] = "target_refused"
    revision: int = Field(description="of both")
    stage: str | None = Field(description="of the controller that wrote it; null: it does not say")
    reason: Why


class LoopFinished(_Event):
    """A loop over epochs is over; the script continues with another one, or ends."""

    event: Literal["loop_finished"] = "loop_finished"
    loop: int = Field(description="number of the next one, counted from 0")
    position: Where


class Finished(_Event):
    """The job has finished."""

    event: Literal["finished"] = "finished"
    position: Where


class Failed(_Event):
    """The job has failed."""

    event: Literal["failed"] = "failed"
    reason: Why


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
    """Parse a line. Raises `records.Unreadable`, which names the file `where` and says what to do."""
    return _FORMAT.parse(line, where)
