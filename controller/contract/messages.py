"""The names of tags and SSM parameters, and the models of the messages that `controller`, `node_bootstrap` and
`training` exchange.

The package `contract` is the only part of `controller` that `node_bootstrap` and `training` may import. The tag and
template names are those of AWS Dynamic Training and its deeplearning-cfn template, because existing scripts of users
contain these names.

Times in messages are seconds since the epoch (float, UTC).
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal

from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG_SUFFIX
from dyntrain.controller.contract.leave_windows import LeaveWindow
from dyntrain.controller.contract.pool_policy import PoolPolicy
from dyntrain.controller.contract.stage import StageName
from dyntrain.controller.contract.wire import Wire
from pydantic import ConfigDict, Field, SecretStr, ValidationInfo, field_validator

LAUNCH_TEMPLATE_SUFFIX = "-aws-dl-cfn-worker-ec2-launch-template"  # after the cluster's name
STATUS_TAG = "elastic_worker_status"  # the tag in which the controller shows a node's status
OWNER_TAG = "dyntrain:cluster"  # the controller's tag on instances that a cluster owns
BASE_TAG = "dyntrain:base"  # marks an instance as a base node
NODE_TYPE_TAG = "NodeType"  # its value `Master` marks the master

NODE_SOURCE = "dyntrain.node"  # EventBridge source of nodes
COORDINATOR_SOURCE = "dyntrain.coordinator"  # EventBridge source of coordinators
IDENTITY_VARIABLE = "DYNTRAIN_IDENTITY"  # holds the node's `SignedDocument` for its coordinator process


def source_of(source: str, cluster: str) -> str:  # an EventBridge source
    """The EventBridge source of events from the nodes or the coordinator of `cluster`. IAM allows a node to send events
    only with the source of its own cluster.
    """
    return f"{source}.{cluster}"


def sender(source: str) -> tuple[str, str | None]:  # kind and cluster of the sender
    """Split the source of an event into the kind of sender (`NODE_SOURCE` or `COORDINATOR_SOURCE`) and the sender's
    cluster. If the source names no cluster, the returned cluster is None, and the sender may report for any cluster.
    """
    for source_prefix in (NODE_SOURCE, COORDINATOR_SOURCE):
        if source.startswith(f"{source_prefix}."):
            return source_prefix, source.removeprefix(f"{source_prefix}.")
    return source, None


CLUSTER_NAME = (  # a regular expression
    r"^[A-Za-z][A-Za-z0-9-]{0,63}$"  # a stack name of CloudFormation, but shorter, because tag keys contain the name
)
CODE_SOURCE = r"^s3://[a-z0-9.-]+/[^\s'\"\\]+$"  # an S3 address, as a regular expression
S3_LOCATION = r"^s3://[a-z0-9.-]{3,63}(/[A-Za-z0-9._-]+)*$"  # without wildcards, because IAM policies contain it
S3_FOLDER = r"^s3://[a-z0-9.-]{3,63}(/[A-Za-z0-9._-]+)+$"  # not a bucket's root, where TensorBoard finds nothing
MOST_WORKERS = 1024  # of one job; sums that compare the workers' steps are exact up to this number
INSTANCE_ID = r"^i-[0-9a-f]{8}([0-9a-f]{9})?$"  # an EC2 instance id, as a regular expression

InstanceId = Annotated[str, Field(pattern=INSTANCE_ID)]
ClusterName = Annotated[str, Field(pattern=CLUSTER_NAME)]
Status = Literal["WAITING", "PREPARE_FAILED", "ADD_QUEUED", "ADDED", "REMOVAL_QUEUED", "REMOVED", "GONE"]


def is_base_value(value: str | None) -> bool:
    """Whether the tag `dyntrain:base` with this value makes an instance a base node. For a missing tag, `value` is
    None.
    """
    return value is not None and value.strip().lower() not in ("false", "no", "0")


def launch_template_name(cluster: str) -> str:
    """The name of the launch template whose instances join `cluster` automatically."""
    return f"{cluster}{LAUNCH_TEMPLATE_SUFFIX}"


def parameter(cluster: str, leaf: Literal["policy", "node", "target", "coordinator", "token"]) -> str:
    """The name of an SSM parameter of the cluster. The parameter `token` is a SecureString, and all other parameters
    contain JSON.
    """
    return f"/dyntrain/{cluster}/{leaf}"


class ClusterPolicy(Wire):
    """The operator's settings for a cluster, stored as JSON in the SSM parameter `policy`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: ClusterName
    stage: StageName | None = Field(  # name of the controller that serves the cluster
        None, description="the controller that serves the cluster; None: the only controller"
    )
    groups: tuple[str, ...] = ()  # names of the cluster's Auto Scaling groups
    min_workers: int = Field(1, ge=1)  # smallest number of nodes in the job
    max_workers: int = Field(64, ge=1, le=MOST_WORKERS)  # largest number of nodes in the job
    lease_seconds: float = Field(  # longest silence of a coordinator that runs
        30.0, gt=0, description="after this silence of its coordinator, a job counts as not running"
    )
    boundary: Literal["epoch", "segment"] = "epoch"  # where the job's members change
    heartbeat_seconds: float = Field(60.0, gt=0, description="interval of heartbeats for a waiting lifecycle action")
    settling_seconds: float = Field(  # time in which an event counts more than a read
        10.0, ge=0, description="a read within this time after an event does not overrule it"
    )
    resync_seconds: float = Field(60.0, gt=0)  # interval between reads of the whole cluster
    takeover_seconds: float = Field(  # longest silence before another coordinator is nominated
        120.0, ge=60, description="after this silence of the coordinator, another base node is nominated"
    )
    hook_cap_seconds: float = Field(  # largest age of a lifecycle action
        21_600.0,
        gt=0,
        description="a lifecycle action older than this is abandoned; keep it below the hook's GlobalTimeout",
    )
    notice_lead_seconds: float = Field(  # how early a node leaves before maintenance
        900.0, ge=0, description="how long before a scheduled AWS maintenance a node leaves"
    )
    rebalance: Literal["leave", "ignore"] = Field(  # reaction to EC2's rebalance recommendations
        "leave", description="whether nodes leave at a rebalance recommendation, which is only advice"
    )
    rebalance_grace_seconds: float = Field(  # time to stay after a recommendation
        120.0,
        ge=0,
        description="how long after the recommendation a node may stay, for the next boundary to take it out",
    )
    leave_windows: tuple[LeaveWindow, ...] = Field(
        (), max_length=20, description="when nodes leave at people's request; none: at any time"
    )
    launch_cooldown_seconds: float = Field(  # pause after failed launches
        300.0,
        gt=0,
        description="pause after failed launches before capacity is raised again; doubles with each failure",
    )
    alike_failures: int = Field(  # equal failures after which a group launches no more
        3,
        ge=1,
        description="after so many consecutive nodes failed alike, their group launches no more until "
        "prepare-data has changed",
    )
    orphan_grace_seconds: float = Field(  # age at which an unwanted instance is reported
        3600.0, gt=0, description="an instance that nobody wants is reported after this long"
    )
    terminate_orphans: bool = Field(
        False, description="terminate orphans that carry the ownership tag, rather than only report them"
    )
    hold_endings: bool = Field(  # whether suspicious mass terminations are stopped
        True,
        description="stop and raise an alarm when more than five instances that never reported are to be terminated "
        "within ten minutes",
    )
    after_job: Literal["keep", "stop", "terminate"] = Field(  # what happens to base nodes after the job
        "keep", description="what becomes of base nodes ten minutes after the job is over, and at the limits below"
    )
    idle_hours: float | None = Field(  # longest time of a cluster without a job
        None, gt=0, description="a cluster without a job for so long is closed as after_job says; None: no limit"
    )
    max_hours: float | None = Field(  # longest life of the cluster
        None, gt=0, description="a cluster that has run for so long is closed, whatever it does; None: no limit"
    )
    pool: PoolPolicy | None = Field(None, description="hand idle reserved instances to the cluster; None: no pool")

    @field_validator("max_workers")
    @classmethod
    def _check_maximum_workers(cls, value: int, info: ValidationInfo) -> int:
        min_workers = info.data.get("min_workers", 1)
        if value < min_workers:
            raise ValueError(f"max_workers must not be below min_workers ({min_workers})")
        return value

    @field_validator("idle_hours", "max_hours")
    @classmethod
    def _check_closing_action(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and info.data.get("after_job", "keep") == "keep":
            raise ValueError("a limit in hours needs after_job to be stop or terminate: how the cluster is closed")
        return value

    @field_validator("pool")
    @classmethod
    def _check_pool(cls, value: PoolPolicy | None, info: ValidationInfo) -> PoolPolicy | None:
        if value is not None:
            value.check_cluster(info.data.get("groups", ()), waits=bool(info.data.get("leave_windows")))
        return value

    @field_validator("groups")
    @classmethod
    def _check_group_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for group_name in value:
            if not 0 < len(group_name) <= 255 or "/" in group_name:
                raise ValueError(f"{group_name!r} is not a valid name of an Auto Scaling group")
        return value


class NodeConfig(Wire):
    """The settings with which the cluster's nodes prepare themselves and train, stored as JSON in the SSM parameter
    `node`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: ClusterName
    stage: StageName | None = Field(None, description="the controller's stage; targets of other stages are not obeyed")
    elastic_suffix: str = Field(  # suffix of the elastic tag's key
        ELASTIC_TAG_SUFFIX, min_length=1, description="suffix of the tag by which instances join"
    )
    mount: str = Field(description="absolute path of the volume that all nodes share")
    volume: str | None = Field(  # id of the shared EFS file system
        None,
        pattern=r"^fs-[0-9a-f]{8,40}$",
        description="EFS file system to mount at `mount`, with TLS; None: it is mounted already",
    )
    prepare_script: str | None = Field(None, description="absolute path; None: nothing to prepare")
    code: str | None = Field(  # S3 address of the code's archive
        None,
        pattern=CODE_SOURCE,
        description="tar archive that nodes unpack on the volume: the command runs in it, and its own prepare-data.py, "
        "if it has one, in place of prepare_script; None: people bring the code",
    )
    prepare_sha256: str | None = Field(  # SHA-256 of the prepare script
        None, pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the script; a script with another digest is not run"
    )
    prepare_user: str | None = Field(  # user that runs the prepare script
        None,
        pattern=r"^[a-z_][a-z0-9_-]{0,31}$",
        description="who runs the script; None: as the training script, so on EC2 the user that the unit names",
    )
    prepare_timeout_seconds: float = Field(1800.0, gt=0)  # for one attempt to prepare
    prepare_attempts: int = Field(3, ge=1)  # attempts before the preparation counts as failed
    training_cmd: tuple[str, ...] = Field(
        description="argv of the worker process; never run through a shell. Empty: the nodes wait for a launch on the "
        "master"
    )
    working_directory: str | None = Field(
        None,
        description="absolute path, there on each node, where the command runs; None: the mount, or the code's folder",
    )
    logs: Literal["node", "volume"] = Field(  # where the workers' logs are kept
        "node", description="volume: what each worker writes is copied to the shared volume too, under its job"
    )
    dt_scripts: bool = Field(  # run AWS Dynamic Training's scripts unchanged
        False, description="scripts of AWS Dynamic Training run as they are: `import mxnet` gives them the elastic face"
    )
    workers: int = Field(  # number of nodes at the start
        1, ge=1, description="nodes there from the start, master included: the job begins when so many are ready"
    )
    workers_per_node: int = Field(
        1, ge=1, le=64, description="worker processes a node, such as one for each GPU: they come and go together"
    )
    engine: Literal["pslite", "horovod"] = Field(  # how gradients are summed
        "pslite", description="how gradients are summed; horovod (all-reduce among workers) must be on each node"
    )
    servers: Literal["base", "all"] = Field(  # nodes that run ps-lite servers
        "base",
        description="which nodes run ps-lite servers; all: the traffic is spread over all nodes, but losing any one "
        "restarts the workers from the safe state",
    )
    servers_per_base: int = Field(1, ge=1)  # ps-lite servers on each base node
    warm_spares: int = Field(  # number of idle worker processes per node
        0,
        ge=0,
        description="idle worker processes of a node, ready to take over; each needs a worker's memory",
    )
    segment_steps: int | None = Field(None, ge=1)  # training steps in a segment
    boundary: Literal["epoch", "segment"] = Field(  # where the job's members change
        "epoch", description="where changes without a deadline are made; deadlines take the next segment"
    )
    checkpoint_dir: str | None = Field(
        None, description="absolute path that all nodes share, for commits; None: on the mount"
    )
    data_location: str | None = Field(
        None, pattern=S3_LOCATION, description="s3://BUCKET/PREFIX: job.channel(NAME) reads what is in PREFIX/NAME/"
    )
    output_location: str | None = Field(
        None,
        pattern=S3_FOLDER,
        description="s3://BUCKET/PREFIX: commits, output/ and TensorBoard's curves go there when an epoch ends",
    )
    state_transfer: Literal["encrypted", "clear"] = Field(  # encryption of the training state in transit
        "encrypted", description="how the state is sent between nodes; clear: only for a private network"
    )
    min_workers: int = Field(1, ge=1)  # smallest number of nodes in the job
    max_workers: int = Field(64, ge=1, le=MOST_WORKERS)  # largest number of nodes in the job
    liveness_seconds: float = Field(  # longest silence of a live process
        20.0, gt=0, description="a process of the job without an answer for so long counts as hung"
    )
    progress_seconds: float = Field(  # longest time without a training step
        600.0, gt=0, description="a job that makes no step, or a started worker that does not connect, counts as stuck"
    )
    pause_seconds: float = Field(3600.0, gt=0, description="a job below its minimum of workers fails after so long")
    environment: dict[str, str] = Field({})  # variables for the processes on each node
    isolation_seconds: float = Field(  # longest time without a coordinator
        120.0, gt=0, description="a node without a coordinator for so long stops its worker and asks the controller"
    )
    identity_keys: str = Field(  # trusted keys of identity documents
        "",
        description="public keys that sign identity documents; empty or the word region: AWS's key of the region; the "
        "word unverified: nodes need not prove who they are",
    )
    rebalance: Literal["leave", "ignore"] = Field(  # reaction to EC2's rebalance recommendations
        "leave", description="what a rebalance recommendation does, as in the policy, for what the node tells the job"
    )
    rebalance_grace_seconds: float = Field(120.0, ge=0, description="as in the policy")
    worker_launch_template: str = Field(  # id of the launch template for joining instances
        "", description="id of the template whose instances join, for people's commands; empty: the node's own"
    )


class Target(Wire):
    """The members that the job should have, as planned by the controller, stored as JSON in the SSM parameter `target`.

    `members` are the prepared instances that the job should use, in order of joining. If the list is too long for an
    SSM parameter (4 KB of JSON), `members` is None, and `pointer` names the DynamoDB item with the list. `digest` is
    always the digest of the whole list of members.

    `coordinator` is the base node that is nominated to run the coordinator, and `term` is the number of the nomination.
    In term 0 the node that is tagged as master runs the coordinator. `replacing` maps former base nodes to their
    successors. The coordinator exchanges a base node and its successor as soon as the successor's ps-lite processes
    run. `causes` says why instances joined or left with this revision, for as many instances as fit into the parameter.
    """

    revision: int = Field(ge=0)  # grows with each change of the target
    count: int = Field(ge=0)  # number of members
    digest: str  # of the list of members
    members: tuple[InstanceId, ...] | None  # instance ids; None: see `pointer`
    pointer: str | None = None  # the DynamoDB item with the members
    leave_by: dict[InstanceId, float] = Field({})  # when members must have left
    finished: bool = False  # the job is over
    coordinator: InstanceId | None = None  # id of the nominated instance
    term: int = Field(0, ge=0)  # number of the nomination
    replacing: dict[InstanceId, InstanceId] = Field({})  # former base node -> its successor
    stage: str | None = Field(None, description="stage of the controller that wrote the target")
    causes: dict[InstanceId, str] = Field({}, exclude_if=lambda causes: not causes)  # why instances joined or left

    @classmethod
    def of(cls, revision: int, members: tuple[str, ...], leave_by: dict[str, float] | None = None) -> Target:
        return cls(
            revision=revision,
            count=len(members),
            digest=members_digest(members),
            members=members,
            leave_by=leave_by or {},
        )

    def contradicts(self, other: Target) -> bool:
        """Whether this target and `other` have the same revision but different contents. The deadlines `leave_by` are
        not compared, because a long target omits the deadlines.
        """
        return self.revision == other.revision and self._wanted_state() != other._wanted_state()

    def _wanted_state(self) -> object:
        return self.digest, self.finished, self.coordinator, self.term, self.replacing


def members_digest(members: tuple[str, ...]) -> str:
    """The digest of the ordered member list, as 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(list(members)).encode()).hexdigest()[:16]


class SignedDocument(Wire):
    """An instance identity document, exactly as the metadata service returns the document, and the document's base64
    signature.

    Anyone who has the document and the signature can impersonate the instance. The document and the signature are
    therefore sent only to the coordinator and the controller, and never logged.
    """

    document: str = Field(max_length=8192, repr=False)  # JSON about the instance
    signature: str = Field(max_length=2048, repr=False)  # base64


class CoordinatorEndpoint(Wire):
    """The address of the running coordinator, stored as JSON in the SSM parameter `coordinator`. Clients of the
    coordinator trust only the TLS certificate `certificate` (PEM).
    """

    cluster: ClusterName
    job: str  # name of the job
    instance_id: str  # of the coordinator's node
    url: str  # of the coordinator
    certificate: str  # TLS certificate of the coordinator, in PEM
    published_at: float  # seconds since the epoch


class ControlFile(Wire):
    """The data with which a worker process connects to its coordinator, stored as JSON in a file of mode 0600. The
    environment variable `DYNTRAIN_CONTROL_FILE` contains the file's path.
    """

    cluster: ClusterName
    job: str  # name of the job
    instance_id: str  # of the worker's node
    private_ip: str  # of the worker's node
    url: str  # of the coordinator
    certificate: str  # TLS certificate of the coordinator, in PEM
    token: SecretStr  # the cluster's token
    mount: str  # path of the shared volume
    slot: int = Field(0, ge=0, description="the number of the worker process on its node")
    slots: int = Field(1, ge=1, description="the number of worker processes on the node")
    identity: SignedDocument | None = Field(  # the node's identity document
        None, description="the node's identity document, with which the worker proves its node"
    )
    liveness_seconds: float = Field(  # longest silence of a live process
        20.0, gt=0, description="the job's two clocks (`NodeConfig`), which bound the worker's waits too"
    )
    progress_seconds: float = Field(600.0, gt=0)  # as in `NodeConfig`

    def to_json(self) -> str:
        """The JSON that is written into the control file of mode 0600. The JSON contains the cluster's token in plain
        text.
        """
        return json.dumps({**self.model_dump(mode="json"), "token": self.token.get_secret_value()})
