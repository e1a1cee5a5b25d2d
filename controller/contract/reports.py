"""The reports that nodes and coordinators send to EventBridge. Of the reports of one sender, only the latest is used.
Times are seconds since the epoch (float, UTC).
"""

from __future__ import annotations

from typing import Annotated, Literal

from dyntrain.controller.contract.job_history import JobHistory, JobProgress, readable_or_none
from dyntrain.controller.contract.messages import ClusterName, InstanceId, SignedDocument
from dyntrain.controller.contract.wire import Wire
from pydantic import Field, WrapValidator

MAX_TEXT_LENGTH = 2000  # characters of a reason or a traceback in a report


class NodeReport(Wire):
    """A node's report on its own preparation, which the node repeats until the target lists the node.

    Of a node's reports in one hour, the report with the highest `attempt` is the latest. Of reports with the same
    `attempt`, the report with the latest `at` is the latest. A report of a later hour always replaces the reports of
    earlier hours. If `outcome` is `alive`, the report says nothing about the result of the preparation, and `reason` is
    the node's present activity.
    """

    cluster: ClusterName
    instance_id: InstanceId
    private_ip: str  # of the node
    attempt: int = Field(ge=1, description="grows with every bootstrap of this instance, also over reboots")
    outcome: Literal["alive", "prepared", "prepare_failed", "interrupted", "worker_failed"]  # alive: still preparing
    reason: str = Field("", max_length=MAX_TEXT_LENGTH)  # why the preparation failed, or the node's activity
    at: float  # time of the report, in seconds since the epoch
    deadline: float | None = Field(None, description="interrupted only: when the instance will be taken")
    script: str = Field(  # SHA-256 of the prepare-data script
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
    """A node's worker as the coordinator sees it. `active` is true from the worker's first training step in the present
    generation on. Before its first training step, a worker is only joining the generation.
    """

    instance_id: InstanceId
    rank: int = Field(ge=0, description="the coordinator's own number for the worker, not ps-lite's rank")
    active: bool  # has taken part in a step of this generation
    processes: int = Field(  # number of the node's worker processes
        1, ge=1, description="the number of the node's worker processes", exclude_if=lambda processes: processes == 1
    )
    joined_epoch: int = Field(ge=0)  # the epoch in which the worker joined
    joined_at: float  # seconds since the epoch
    leaving: bool = Field(False, description="the worker is in no generation any more, but has not left yet")
    step_seconds: float | None = Field(  # duration of a step, without waits
        None, ge=0, description="time of a step on this worker, without waiting for other workers; null: unknown"
    )


class Unreachable(Wire):
    """A service that does not answer the coordinator. The coordinator repeats its request, and cannot read and obey the
    target until the service answers.
    """

    what: str = Field(max_length=100, description='completes "the coordinator cannot reach ..."')
    since: float  # start of the outage, in seconds since the epoch
    reason: str = Field("", max_length=MAX_TEXT_LENGTH)  # the last error


class JobReport(Wire):
    """The coordinator's report on its job. The report with the highest (`started_at`, `sequence`) is the latest. The
    coordinator sends reports regularly, so the controller takes a long silence as a sign that the job does not run.

    `members` are all workers that train or are joining a generation. An instance that is neither in `members` nor in
    the target with the number `revision` can be terminated without harm to the job, because the instance could join the
    job only by a later target.
    """

    cluster: ClusterName
    job: str  # name of the job
    state: Literal["starting", "running", "paused", "finished", "failed"]  # of the job
    started_at: float  # when the job began
    sequence: int = Field(ge=0)  # number of the report
    generation: int = Field(ge=0)  # number of the present set of workers
    revision: int = Field(ge=0, description="the target revision that this report's members obey")
    members: tuple[JobMember, ...]  # the job's workers
    epoch: int = 0  # the present epoch, counted from 0
    epochs: int = 0  # number of epochs of the job; 0: unknown
    step: int = 0  # number of training steps so far
    samples_per_second: float = 0.0  # of all workers together
    reason: str = Field("", max_length=MAX_TEXT_LENGTH, description="why the job is paused, or has failed")
    closed: bool = Field(False, description="the job is over, and a coordinator that starts now begins another job")
    traceback: str = Field(  # of the training script's error
        "",
        max_length=MAX_TEXT_LENGTH,
        description="the script's traceback, if the script raised and made no progress since",
    )
    instance_id: str = Field("", description="the node that runs the coordinator")
    private_ip: str = ""  # of the coordinator's node
    unreachable: tuple[Unreachable, ...] = ()  # services that do not answer
    identity: SignedDocument | None = Field(None, description="proves that the report comes from this node")
    progress: Annotated[JobProgress | None, WrapValidator(readable_or_none)] = None  # of the whole job
    history: Annotated[JobHistory | None, WrapValidator(readable_or_none)] = None  # of the whole job, for curves

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
