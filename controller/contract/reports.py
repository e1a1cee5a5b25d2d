"""Reports of nodes and coordinators on the event bus. Only the latest report of each sender counts. Times are seconds
since the epoch (float, UTC).
"""

from __future__ import annotations

from typing import Annotated, Literal

from dyntrain.controller.contract.job_history import JobHistory, JobProgress, readable_or_none
from dyntrain.controller.contract.messages import ClusterName, InstanceId, SignedDocument
from dyntrain.controller.contract.wire import Wire
from pydantic import Field, WrapValidator

MAX_TEXT_LENGTH = 2000  # characters of a reason or a traceback in a report


class NodeReport(Wire):
    """A node's report on its own preparation, repeated until the target lists the node.

    Of a node's reports the highest `attempt` counts, then the latest `at`; but a report of a later hour always counts.
    The outcome `alive` says nothing about the preparation; its `reason` is the node's present activity.
    """

    cluster: ClusterName
    instance_id: InstanceId
    private_ip: str
    attempt: int = Field(ge=1, description="grows with every bootstrap of this instance, also over reboots")
    outcome: Literal["alive", "prepared", "prepare_failed", "interrupted", "worker_failed"]
    reason: str = Field("", max_length=MAX_TEXT_LENGTH)
    at: float
    deadline: float | None = Field(None, description="interrupted only: when the instance will be taken")
    script: str = Field(
        "",
        pattern=r"^([0-9a-f]{64})?$",
        description="SHA-256 of the prepare-data that the node ran or, when alive, sees",
        exclude_if=lambda script: not script,
    )
    identity: SignedDocument | None = Field(None, description="proves that the report comes from the instance")

    @property
    def detail_type(self) -> str:
        return NODE_DETAIL_TYPES[self.outcome]


NODE_DETAIL_TYPES = {
    "alive": "Node Alive",
    "prepared": "Node Prepared",
    "prepare_failed": "Node Prepare Failed",
    "interrupted": "Node Interrupted",
    "worker_failed": "Node Worker Failed",
}


class JobMember(Wire):
    """A worker as the coordinator sees it. `active` is true after the worker's first step in this generation; until
    then the worker is being formed into the generation.
    """

    instance_id: InstanceId
    rank: int = Field(ge=0, description="the coordinator's own number for the worker, not ps-lite's rank")
    active: bool
    processes: int = Field(
        1, ge=1, description="the number of the node's worker processes", exclude_if=lambda processes: processes == 1
    )
    joined_epoch: int = Field(ge=0)
    joined_at: float
    leaving: bool = Field(False, description="the worker is in no generation any more, but has not left yet")
    step_seconds: float | None = Field(
        None, ge=0, description="time of a step on this worker, without waiting for other workers; null: unknown"
    )


class Unreachable(Wire):
    """A request that the coordinator repeats without an answer. Meanwhile the coordinator cannot read and obey the
    target.
    """

    what: str = Field(max_length=100, description='completes "it cannot reach ..."')
    since: float
    reason: str = Field("", max_length=MAX_TEXT_LENGTH)


class JobReport(Wire):
    """The coordinator's report. The highest (`started_at`, `sequence`) counts. The coordinator repeats the report often
    enough to serve as a lease.

    `members` are all workers that train or are being formed into a generation. An instance that is neither in `members`
    nor in the target of `revision` is safe to terminate, because only a later target can admit the instance.
    """

    cluster: ClusterName
    job: str
    state: Literal["starting", "running", "paused", "finished", "failed"]
    started_at: float
    sequence: int = Field(ge=0)
    generation: int = Field(ge=0)
    revision: int = Field(ge=0, description="the target revision that this report's members obey")
    members: tuple[JobMember, ...]
    epoch: int = 0
    epochs: int = 0
    step: int = 0
    samples_per_second: float = 0.0
    reason: str = Field("", max_length=MAX_TEXT_LENGTH, description="why it is paused, or has failed")
    closed: bool = Field(False, description="the job is over, and a coordinator that starts now begins another job")
    traceback: str = Field(
        "",
        max_length=MAX_TEXT_LENGTH,
        description="the script's traceback, if the script raised and made no progress since",
    )
    instance_id: str = Field("", description="the node that runs the coordinator")
    private_ip: str = ""
    unreachable: tuple[Unreachable, ...] = ()
    identity: SignedDocument | None = Field(None, description="proves that the report comes from this node")
    progress: Annotated[JobProgress | None, WrapValidator(readable_or_none)] = None
    history: Annotated[JobHistory | None, WrapValidator(readable_or_none)] = None

    @property
    def detail_type(self) -> str:
        return JOB_DETAIL_TYPES[self.state]


JOB_DETAIL_TYPES = {
    "starting": "Job Started",
    "running": "Generation Applied",
    "paused": "Generation Applied",
    "finished": "Job Finished",
    "failed": "Job Finished",
}
