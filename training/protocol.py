"""The messages of the control channel between the coordinator, node supervisors and worker processes.

One JSON text message each, at most `MAX_BYTES`, told apart by `type`. `PROTOCOL` is in both hellos; the coordinator refuses others.
The coordinator begins each connection with a challenge, the answer must be a hello (`admission` says what it proves). Times are seconds since
the epoch.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_serializer

from controller.contract import SignedDocument

PROTOCOL = 3
MAX_BYTES = 256 * 1024
MODULE = "module"  # the batching of a job whose script divides its data itself


Finite = Annotated[float, Field(allow_inf_nan=False)]  # a metric may be NaN, when the loss diverges; a time may not


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


class Position(Message):
    """A point between two steps: `offset` samples of `epoch` are done, `step` steps since the job began."""

    epoch: int = Field(ge=0)
    offset: int = Field(ge=0)
    step: int = Field(ge=0)


class SafeCopy(Message):
    """A whole state in memory of a node's supervisor: that of `position`, where `generation` began or came to a boundary. `name` is its checksum."""

    generation: int
    position: Position
    name: str = Field(max_length=100)


class Hello(Message):
    protocol: int = PROTOCOL
    cluster: str = Field(max_length=100)
    instance_id: str = Field(max_length=100)
    private_ip: str = Field(max_length=100)
    identity: SignedDocument | None = None
    proof: str = Field("", max_length=100, repr=False, description="that the sender knows the token; made for one connection")


# ---- from a node's supervisor


class NodeHello(Hello):
    """The signal that a node is prepared: sent on every (re)connection, so a coordinator that was down learns of it."""

    type: Literal["node_hello"] = "node_hello"
    attempt: int = Field(ge=1)
    base: bool
    worker_pid: int | None = None


class GroupReady(Message):
    """A base node holds blank ps-lite processes and a free port for a scheduler; sent again after each use."""

    type: Literal["group_ready"] = "group_ready"
    scheduler_port: int = Field(ge=1, le=65535)
    blanks: int = Field(ge=0)


class GroupFailed(Message):
    """A ps-lite process of the generation died, or could not be started."""

    type: Literal["group_failed"] = "group_failed"
    generation: int
    reason: str


class WorkerStarted(Message):
    """A worker process of the node runs now: until it connects, nobody but the coordinator bounds it. `spare`: it was promoted, not started."""

    type: Literal["worker_started"] = "worker_started"
    pid: int
    spare: bool = False


class WorkerExited(Message):
    type: Literal["worker_exited"] = "worker_exited"
    pid: int
    code: int
    reason: str


class NodeNotice(Message):
    """The machine will be taken at `deadline` (Spot, maintenance)."""

    type: Literal["node_notice"] = "node_notice"
    kind: str
    deadline: Finite


# ---- to a node's supervisor


class Challenge(Message):
    """The first word on a connection: `nonce` was never used before."""

    type: Literal["challenge"] = "challenge"
    nonce: str


class Welcome(Message):
    type: Literal["welcome"] = "welcome"
    job: str


class Listed(Message):
    """Whether the controller's target holds the node: the acknowledgement of its report. Sent after the welcome and at each change."""

    type: Literal["listed"] = "listed"
    listed: bool


class PsProcess(Message):
    role: Literal["scheduler", "server"]
    environment: dict[str, str]


class StartGroup(Message):
    type: Literal["start_group"] = "start_group"
    generation: int
    processes: tuple[PsProcess, ...]


class StopGroup(Message):
    """Kill the ps-lite processes of this and of earlier generations."""

    type: Literal["stop_group"] = "stop_group"
    generation: int


class RestartWorker(Message):
    """Kill the worker process `pid` if it still runs, and start another. Another pid than the present worker's: nothing to do. Pid 0: start one if
    the last one left."""

    type: Literal["restart_worker"] = "restart_worker"
    pid: int
    reason: str


class CoolDown(Message):
    """The worker `pid` that ended is not started again before so many seconds have passed: it failed too often. `given_up`: nor is the node
    worth waiting for, which the controller should hear. Said again after each welcome."""

    type: Literal["cool_down"] = "cool_down"
    pid: int
    seconds: Finite
    given_up: bool = False


class Retire(Message):
    """The node has left the job: stop the worker and all else, and exit."""

    type: Literal["retire"] = "retire"
    reason: str


# ---- from a worker process


Stage = Literal["stands", "prepares", "creates", "formed", "trains", "waits", "aborted", "free"]


class WorkerHello(Hello):
    """Where the worker is, so that a coordinator that lost the connection, or is another process now, goes on from there.

    `stage`: it stands by; prepares the generation that it was last ordered to form; was told to go, and may be inside ps-lite; has formed; trains;
    waits at a boundary; was told to abort; or is free of its broken group, at the verdict's `position`. In the other stages `position` is
    where it was last told to step on from. `generation` is the one it was last ordered to form, None before the first. `safe` is the
    newest safe state of its node, of this process or an earlier one.
    """

    type: Literal["worker_hello"] = "worker_hello"
    pid: int
    state_port: int = Field(ge=1, le=65535, description="where this worker hands its state to joiners")
    epochs: int = Field(ge=1)
    samples: int = Field(ge=1)
    global_batch: int = Field(ge=1)
    seed: int
    batching: str = Field("fixed-global", description="how batch and rate follow the number of workers, in words, or MODULE")
    layout: str = Field(description="digest of the parameters' names, shapes and types: members must agree")
    generation: int | None = None
    stage: Stage = "stands"
    position: Position | None = None
    safe: SafeCopy | None = None


class Prepared(Message):
    """The worker is out of its old group and its state, if it holds it, is safe: it waits for the word to go, and can still be told to form another
    generation."""

    type: Literal["prepared"] = "prepared"
    generation: int


class CheckIn(Message):
    """The worker stands at a boundary (or at the end of the job) and waits for the coordinator's word."""

    type: Literal["check_in"] = "check_in"
    generation: int
    position: Position
    pid: int = 0
    samples: int = Field(0, description="samples this worker took since the last check-in")
    seconds: float = Field(0.0, description="time since the last check-in without waiting at the boundary")
    metrics: dict[str, tuple[float, float]] = Field(
        {}, description="name: (sum, count) over this worker's share; merged as sum of sums / sum of counts"
    )


class Formed(Message):
    """The worker is in the new generation, with its state: `digest` covers what must be equal on all workers."""

    type: Literal["formed"] = "formed"
    generation: int
    digest: str
    phases: dict[str, float] = Field({}, description="seconds of what was done one after another: teardown, safe, wait, create, init, state")
    background: dict[str, float] = Field({}, description="seconds of what was done beside them: copy and seal, or transfer and install; digest")


class Left(Message):
    type: Literal["left"] = "left"
    generation: int


class FirstStep(Message):
    """The first step of the generation is applied. `pause` is last old step to first new step less one step; None for a joiner.

    `phases` say where it went, one after another; their sum is the pause, but for the step that is taken off `first_step`.
    """

    type: Literal["first_step"] = "first_step"
    generation: int
    pause: float | None = None
    phases: dict[str, float] = {}


class Committed(Message):
    """The state at `position` is safe outside the workers, in the commit of this name."""

    type: Literal["committed"] = "committed"
    generation: int
    position: Position
    name: str


class CommitFailed(Message):
    """The state at `position` could not be written; training goes on, and the commit before stands."""

    type: Literal["commit_failed"] = "commit_failed"
    generation: int
    position: Position
    reason: str


class CommitUnreadable(Message):
    """The commit or safe state that this worker was to load, as the source of the generation being formed, is gone or damaged for good."""

    type: Literal["commit_unreadable"] = "commit_unreadable"
    generation: int
    name: str
    reason: str


class Progress(Message):
    """Proof of life between boundaries; at most once a second."""

    type: Literal["progress"] = "progress"
    generation: int
    position: Position
    samples_per_second: float


class StepStatus(Message):
    """Answer to an abort: where the worker is in its step. `position` is after the last step it applied, `answered` counts the gradients of the
    step it waits for. `out` of a step it can leave at any time, `held` it waits for the verdict only."""

    type: Literal["step_status"] = "step_status"
    generation: int
    phase: Literal["out", "wait", "held"]
    position: Position
    answered: int = Field(ge=0)


class Pumped(Message):
    """All the zeros that the worker was ordered to push have been answered."""

    type: Literal["pumped"] = "pumped"
    generation: int
    rounds: int
    seconds: float


# ---- to a worker process


class Proceed(Message):
    """Step on from `position`; of another position it is an old word that was said twice. `commit`: first copy the state at this boundary, then
    write it in the background and say committed."""

    type: Literal["proceed"] = "proceed"
    generation: int
    position: Position
    commit: bool = False


class Form(Message):
    """Prepare to join generation `generation` as number `number` of `workers`: say prepared, wait to go, join, say formed, wait for proceed.

    Until the word to go comes, another order to form may come instead: a member was lost, this generation is void.

    The state comes from `source` (an instance id): itself hands over from memory, or first loads `commit`, or the `safe` state of this name;
    everyone whose state is not that of `position` fetches it from `source_host:source_port` with `transfer_token`.
    """

    type: Literal["form"] = "form"
    generation: int
    number: int = Field(ge=0)
    workers: int = Field(ge=1)
    environment: dict[str, str]
    position: Position
    source: str
    source_host: str
    source_port: int
    transfer_token: SecretStr
    fetch: bool = Field(description="whether this worker lacks the state")
    receivers: int = Field(ge=0, description="how many will fetch from the source")
    commit: str | None = None
    safe: str | None = None
    checkpoint_dir: str | None = Field(None, description="where this job's commits are; None: in its folder on the shared volume")
    segment_steps: int | None = Field(None, ge=1, description="steps between boundaries in mid-epoch; None: boundaries at epoch ends only")

    @field_serializer("transfer_token", when_used="json")
    def _in_the_clear(self, token: SecretStr) -> str:
        return token.get_secret_value()


class Go(Message):
    """All members are prepared: join the generation. From here on nobody can be called back."""

    type: Literal["go"] = "go"
    generation: int


class Leave(Message):
    """Drop the store and exit with code 0: at a boundary after an admitted change, or when the job is over. At the job's end a worker of another
    generation than this has not come to the job's result, and must not keep its own."""

    type: Literal["leave"] = "leave"
    generation: int
    reason: str


class Abort(Message):
    """A member of the generation is lost: begin no step any more, issue the present one whole, say where you are. May be asked again."""

    type: Literal["abort"] = "abort"
    generation: int


class Pump(Message):
    """Push zeros for the gradients from number `first` on, until all of them are answered: that frees everybody who is blocked."""

    type: Literal["pump"] = "pump"
    generation: int
    first: int = Field(ge=0)


class Verdict(Message):
    """Who is inside a step that leads to `position` or before it applies it, later steps are void. The order to form comes next."""

    type: Literal["verdict"] = "verdict"
    generation: int
    position: Position


class Refused(Message):
    """The hello was not accepted; the connection is closed after it."""

    type: Literal["refused"] = "refused"
    reason: str
