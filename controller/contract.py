"""Names and wire models that the folders share: tags, parameters, reports, the target.

With `instance_identity`, this is all of `controller` that `node_bootstrap` and `training` may import. The tag and template names are
those of AWS Dynamic Training and its deeplearning-cfn template; people have scripts built on them.

Times on the wire are seconds since the epoch (float, UTC).
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from controller.pool_policy import PoolPolicy

ELASTIC_TAG_SUFFIX = "-aws-dl-cfn-elastic-worker"
LAUNCH_TEMPLATE_SUFFIX = "-aws-dl-cfn-worker-ec2-launch-template"
STATUS_TAG = "elastic_worker_status"
OWNER_TAG = "dyntrain:cluster"
BASE_TAG = "dyntrain:base"
NODE_TYPE_TAG = "NodeType"

NODE_SOURCE = "dyntrain.node"
COORDINATOR_SOURCE = "dyntrain.coordinator"

CLUSTER_NAME = r"^[A-Za-z][A-Za-z0-9-]{0,63}$"  # what CloudFormation takes as a stack name, shortened to leave room in a tag key
INSTANCE_ID = r"^i-[0-9a-f]{8}([0-9a-f]{9})?$"

InstanceId = Annotated[str, Field(pattern=INSTANCE_ID)]
ClusterName = Annotated[str, Field(pattern=CLUSTER_NAME)]
Status = Literal["WAITING", "PREPARE_FAILED", "ADD_QUEUED", "ADDED", "REMOVAL_QUEUED", "REMOVED", "GONE"]


def elastic_tag(cluster: str, suffix: str = ELASTIC_TAG_SUFFIX) -> str:
    """The tag key by which people ask that an instance join `cluster`."""
    return f"{cluster}{suffix}"


def launch_template_name(cluster: str) -> str:
    """The launch template whose instances join `cluster` by themselves."""
    return f"{cluster}{LAUNCH_TEMPLATE_SUFFIX}"


def parameter(cluster: str, leaf: Literal["policy", "node", "target", "coordinator", "token"]) -> str:
    """The SSM parameter of a cluster; `token` is a SecureString, the others are JSON."""
    return f"/dyntrain/{cluster}/{leaf}"


class Wire(BaseModel):
    """Base of everything that crosses a process: immutable, and deaf to fields it does not know, so that versions can differ.

    Numbers are finite: JSON has no others, and one NaN among the times would spoil every comparison after it. Validators are built at a
    model's first use: a Lambda function, or a node, uses few of them.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)


class ClusterPolicy(Wire):
    """What the operator decided for a cluster; JSON in the parameter `policy`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: ClusterName
    groups: tuple[str, ...] = ()
    min_workers: int = Field(1, ge=1)
    max_workers: int = Field(64, ge=1)
    lease_seconds: float = Field(30.0, gt=0, description="a coordinator silent for longer than this counts as no job")
    boundary: Literal["epoch", "segment"] = "epoch"
    heartbeat_seconds: float = Field(60.0, gt=0, description="how often a waiting lifecycle action is kept alive")
    settling_seconds: float = Field(10.0, ge=0, description="a read this young does not overrule an event")
    resync_seconds: float = Field(60.0, gt=0)
    takeover_seconds: float = Field(120.0, ge=60, description="a coordinator silent for longer than this has another base node nominated")
    hook_cap_seconds: float = Field(
        21_600.0, gt=0, description="a lifecycle action older than this is abandoned; keep it below the hook's GlobalTimeout"
    )
    notice_lead_seconds: float = Field(900.0, ge=0, description="how long before a scheduled AWS maintenance a node leaves")
    launch_cooldown_seconds: float = Field(
        300.0, gt=0, description="after failed launches, before capacity is asked for again; doubles with each failure"
    )
    orphan_grace_seconds: float = Field(3600.0, gt=0, description="an instance that nobody wants is reported after this long")
    terminate_orphans: bool = Field(False, description="terminate orphans that carry the ownership tag, rather than only report them")
    pool: PoolPolicy | None = Field(None, description="hand idle reserved instances to the cluster; None: no pool")

    @field_validator("max_workers")
    @classmethod
    def _not_below_the_minimum(cls, value: int, info: ValidationInfo) -> int:
        least = info.data.get("min_workers", 1)
        if value < least:
            raise ValueError(f"must not be below min_workers ({least})")
        return value

    @field_validator("pool")
    @classmethod
    def _a_group_of_the_cluster(cls, value: PoolPolicy | None, info: ValidationInfo) -> PoolPolicy | None:
        groups = info.data.get("groups", ())
        if value is not None and not value.instances and (value.group not in groups if value.group is not None else len(groups) != 1):
            raise ValueError(f"group: name one of the cluster's groups ({', '.join(groups) or 'it has none'}), or list instances")
        return value

    @field_validator("groups")
    @classmethod
    def _named_groups(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not 0 < len(name) <= 255 or "/" in name:
                raise ValueError(f"{name!r} is no name of an Auto Scaling group")
        return value


class NodeConfig(Wire):
    """What a node of the cluster needs to prepare itself and to train; JSON in the parameter `node`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: ClusterName
    mount: str = Field(description="absolute path of the volume that all nodes share")
    volume: str | None = Field(
        None, pattern=r"^fs-[0-9a-f]{8,40}$", description="EFS file system to mount there, with TLS; None: it is there already"
    )
    prepare_script: str | None = Field(None, description="absolute path; None: nothing to prepare")
    prepare_sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$", description="of the script: another one is not run")
    prepare_user: str | None = Field(
        None, pattern=r"^[a-z_][a-z0-9_-]{0,31}$", description="who runs the script; None: as the bootstrap, root on EC2"
    )
    prepare_timeout_seconds: float = Field(1800.0, gt=0)
    prepare_attempts: int = Field(3, ge=1)
    training_cmd: tuple[str, ...] = Field(description="argv of the worker process; never run through a shell")
    workers: int = Field(1, ge=1, description="nodes there from the start, master included: the job begins when so many are ready")
    servers_per_base: int = Field(1, ge=1)
    warm_spares: int = Field(0, ge=0, description="worker processes a node keeps beside its own, ready to take over; each has a worker's memory")
    segment_steps: int | None = Field(None, ge=1)
    boundary: Literal["epoch", "segment"] = Field("epoch", description="where changes without a deadline are made; deadlines take the next segment")
    checkpoint_dir: str | None = Field(None, description="absolute path that all nodes share, for commits; None: on the mount")
    min_workers: int = Field(1, ge=1)
    max_workers: int = Field(64, ge=1)
    liveness_seconds: float = Field(20.0, gt=0, description="without an answer for so long a process of the job counts as hung")
    progress_seconds: float = Field(600.0, gt=0, description="a job that makes no step, or a started worker that does not connect, counts as stuck")
    pause_seconds: float = Field(3600.0, gt=0, description="a job below its minimum of workers fails after so long")
    environment: dict[str, str] = {}
    isolation_seconds: float = Field(120.0, gt=0, description="without a coordinator for so long, a node stops its worker and asks the controller")
    identity_keys: str = Field("", description="public keys that sign identity documents; empty: nodes need not prove who they are")


class Target(Wire):
    """The membership the controller wants: JSON in the parameter `target`.

    `members` are instances that are wanted *and* prepared, in order of joining. When the JSON outgrows one SSM parameter (4 KB) `members`
    is None, and `pointer` names the DynamoDB item that holds the list. `digest` is always that of the full list.
    `coordinator` is the base node that is nominated to run the coordinator, since `term`; term 0: the node that is tagged as master.
    `replacing` maps base nodes that are no members any more to their successors: they are exchanged once the successor can serve.
    """

    revision: int = Field(ge=0)
    count: int = Field(ge=0)
    digest: str
    members: tuple[InstanceId, ...] | None
    pointer: str | None = None
    leave_by: dict[InstanceId, float] = {}
    finished: bool = False
    coordinator: InstanceId | None = None
    term: int = Field(0, ge=0)
    replacing: dict[InstanceId, InstanceId] = {}

    @classmethod
    def of(cls, revision: int, members: tuple[str, ...], leave_by: dict[str, float] | None = None) -> Target:
        return cls(revision=revision, count=len(members), digest=members_digest(members), members=members, leave_by=leave_by or {})


def members_digest(members: tuple[str, ...]) -> str:
    """Sixteen hex digits over the ordered member list."""
    return hashlib.sha256(json.dumps(list(members)).encode()).hexdigest()[:16]


class SignedDocument(Wire):
    """An instance's identity document as its metadata service gives it, and the signature over its very bytes, in base64.

    Whoever has both can pass for the instance: they go to the coordinator and to the controller, and into no log.
    """

    document: str = Field(max_length=8192, repr=False)
    signature: str = Field(max_length=2048, repr=False)


class CoordinatorEndpoint(Wire):
    """Where the running coordinator listens; JSON in the parameter `coordinator`. Clients trust `certificate` (PEM) and nothing else."""

    cluster: ClusterName
    job: str
    instance_id: str
    url: str
    certificate: str
    published_at: float


class ControlFile(Wire):
    """How a worker process reaches its coordinator: JSON in a file of mode 0600 that `DYNTRAIN_CONTROL_FILE` names."""

    cluster: ClusterName
    job: str
    instance_id: str
    private_ip: str
    url: str
    certificate: str
    token: SecretStr
    mount: str
    identity: SignedDocument | None = Field(None, description="the node's: the worker speaks for it")
    liveness_seconds: float = Field(20.0, gt=0, description="the job's two clocks (`NodeConfig`), which bound the worker's waits too")
    progress_seconds: float = Field(600.0, gt=0)

    def to_json(self) -> str:
        """The token in the clear, for the 0600 file only."""
        return json.dumps({**self.model_dump(mode="json"), "token": self.token.get_secret_value()})


class NodeReport(Wire):
    """A node's latest word on its own preparation: the highest `attempt` counts, then the latest `at`. Repeated until the node is listed."""

    cluster: ClusterName
    instance_id: InstanceId
    private_ip: str
    attempt: int = Field(ge=1, description="grows with every bootstrap of this instance, also over reboots")
    outcome: Literal["prepared", "prepare_failed", "interrupted", "worker_failed"]
    reason: str = Field("", max_length=2000)
    at: float
    deadline: float | None = Field(None, description="interrupted only: when the instance will be taken")
    identity: SignedDocument | None = Field(None, description="that the report is the instance's own")

    @property
    def detail_type(self) -> str:
        return NODE_DETAIL_TYPES[self.outcome]


NODE_DETAIL_TYPES = {
    "prepared": "Node Prepared",
    "prepare_failed": "Node Prepare Failed",
    "interrupted": "Node Interrupted",
    "worker_failed": "Node Worker Failed",
}


class JobMember(Wire):
    """One worker as the coordinator sees it. `active` once it took part in a step of the generation: until then it is forming."""

    instance_id: InstanceId
    rank: int = Field(ge=0, description="the coordinator's own number for the worker, not ps-lite's rank")
    active: bool
    joined_epoch: int = Field(ge=0)
    joined_at: float


class JobReport(Wire):
    """The coordinator's latest word; the highest (`started_at`, `sequence`) counts. Repeated often enough to serve as its lease.

    `members` are all that train or are being formed. An instance that is neither here nor in the target of `revision` will not be
    admitted before a later target lists it: that is what makes it safe to terminate.
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
    reason: str = Field("", max_length=2000)

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
