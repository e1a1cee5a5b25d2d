"""Messages between the coordinator and worker processes, and the base classes of all control-channel messages.

The messages of node supervisors are in `node_messages`. Each message is one JSON text of at most `MAX_BYTES`, with its
kind in `type`. `PROTOCOL` is in all hellos; the coordinator refuses other versions. The coordinator opens each
connection with a challenge, which a hello must answer (`admission` says what the hello proves). Times are seconds since
1970.

A generation is the group of workers between two changes of the membership. A boundary is a point between two steps
where the membership may change. A commit is a checkpoint; a safe state is a node's copy of the state in memory.
"""

from __future__ import annotations

from typing import Annotated, Literal

from dyntrain.controller.contract.messages import SignedDocument
from dyntrain.training.protocol.engines import EngineName
from dyntrain.training.protocol.slots import MOST_SLOTS, name_of
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_serializer

PROTOCOL = 5
MAX_BYTES = 256 * 1024
MODULE = "module"  # the batching of a job whose script divides its data itself


Finite = Annotated[float, Field(allow_inf_nan=False)]  # a metric may be NaN if the loss diverges, a time may not


class Message(BaseModel):
    """Base class of all messages."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


class Position(Message):
    """A point between two steps: `offset` samples of `epoch` are done, and `step` steps since the job began."""

    epoch: int = Field(ge=0)
    offset: int = Field(ge=0)
    step: int = Field(ge=0)

    @property
    def next_loop(self) -> Position:
        """The first position of a following loop: a new epoch, even if the present loop ended within an epoch."""
        return Position(epoch=self.epoch + (self.offset > 0), offset=0, step=self.step)


START = Position(epoch=0, offset=0, step=0)
ENDLESS = 1_000_000_000  # a job with at least so many epochs runs until a person ends it
COMMITS_KEPT = 3  # number of newest commits that are kept, besides the commit that was loaded last


class SafeCopy(Message):
    """A safe state: a complete copy in memory of a node's supervisor, with the checksum `name`.

    The state is that at `position`, where `generation` began or reached a boundary.
    """

    generation: int
    position: Position
    name: str = Field(max_length=100)


class Hello(Message):
    """First message of a node or worker."""

    protocol: int = PROTOCOL
    cluster: str = Field(max_length=100)
    instance_id: str = Field(max_length=100)
    private_ip: str = Field(max_length=100)
    slot: int = Field(0, ge=0, lt=MOST_SLOTS, description="number of the worker process on its node")
    slots: int = Field(1, ge=1, le=MOST_SLOTS, description="number of the node's worker processes")
    identity: SignedDocument | None = None
    proof: str = Field(
        "", max_length=100, repr=False, description="proof for one connection that the sender knows the token"
    )

    @property
    def name(self) -> str:
        """The process's name for the coordinator (`protocol.slots`)."""
        return name_of(self.instance_id, self.slot)


# ---- to each new connection


class Challenge(Message):
    """The coordinator's first message on a connection, with a fresh `nonce`."""

    type: Literal["challenge"] = "challenge"
    nonce: str


class Refused(Message):
    """The hello is not accepted; the connection is closed afterwards."""

    type: Literal["refused"] = "refused"
    reason: str


# ---- from a worker process


Stage = Literal["stands", "prepares", "creates", "formed", "trains", "waits", "aborted", "free"]


class LoopTerms(Message):
    """Settings that must be equal on all workers in a loop over epochs; `epochs` counts over the whole job."""

    epochs: int = Field(ge=1)
    samples: int = Field(ge=1)
    drawn_from: int | None = Field(
        None, ge=1, description="samples of the dataset, if each epoch omits those that fill no batch"
    )
    global_batch: int = Field(ge=1)
    seed: int
    batching: str = Field(
        "fixed-global", description="how batch and rate follow the number of workers, in words, or MODULE"
    )
    layout: str = Field(description="digest of the parameters' names, shapes and types: members must agree")
    summed_bytes: int = Field(0, ge=0, description="bytes that a worker sends to all servers in a step")
    loop: int = Field(0, ge=0, description="index of the script's loop over epochs")
    another: bool = Field(False, description="whether another loop may follow; then the job ends with the script")


class WorkerHello(Hello, LoopTerms):
    """State of a worker, for a coordinator that lost the connection or has just started.

    `generation` is the last one that the worker was ordered to form, None before the first. `stage`: the worker
    "stands" by; "prepares" its generation; "creates" the group after the order to go, perhaps inside ps-lite; has
    "formed"; "trains"; "waits" at a boundary; was "aborted" by an order; or is "free" of its broken group. If free,
    `position` is the verdict's, otherwise that of the last order to proceed. `safe`: the node's newest safe state.
    """

    type: Literal["worker_hello"] = "worker_hello"
    pid: int
    state_port: int = Field(ge=1, le=65535, description="port at which joiners get this worker's state")
    engine: EngineName = "pslite"
    passed: int = Field(
        0, ge=0, description="number of loops that the worker knows to be over; more than `loop` between loops"
    )
    generation: int | None = None
    stage: Stage = "stands"
    position: Position | None = None
    safe: SafeCopy | None = None


class Prepared(Message):
    """The worker has left its old group, has made its state safe, and waits for the order to go.

    The worker may still be ordered to form another generation.
    """

    type: Literal["prepared"] = "prepared"
    generation: int


class Fetching(Message):
    """Progress of a large state's transfer to a worker, in bytes: sent at its start, then once a second."""

    type: Literal["fetching"] = "fetching"
    generation: int
    received: int = Field(ge=0)
    size: int = Field(ge=1)


class CheckIn(Message):
    """The worker is at a boundary (or at the job's end) and waits for the coordinator's order."""

    type: Literal["check_in"] = "check_in"
    generation: int
    position: Position
    pid: int
    samples: int = Field(0, description="samples that this worker took since its last check-in")
    seconds: float = Field(0.0, description="time since the last check-in without waiting at the boundary")
    stop: bool = Field(False, description="whether this worker's script ends the job here, successfully")
    metrics: dict[str, tuple[float, float]] = Field(
        {}, description="name: (sum, count) over this worker's share; the job's value is all sums / all counts"
    )
    silenced: dict[str, str] = Field(
        {}, description="how rules of the script's checks were silenced, by code or `all`", max_length=100
    )
    checks: tuple[tuple[str, str], ...] = Field(
        (), description="(name, checksum of a few values) of each array that must be equal on all workers"
    )


class Formed(Message):
    """The worker has joined the new generation, with the state, whose `digest` must be equal on all workers."""

    type: Literal["formed"] = "formed"
    generation: int
    digest: str
    checks: tuple[tuple[str, str], ...] = Field((), description="(name, checksum) of each array in the digest")
    phases: dict[str, float] = Field(
        {}, description="seconds of consecutive parts: teardown, safe, wait, create, init, state"
    )
    background: dict[str, float] = Field(
        {}, description="seconds of parallel parts: copy and seal, or transfer and install; digest"
    )


class Entered(LoopTerms):
    """The script has reached its next loop over epochs.

    `generation`: the last one that the worker was ordered to form, or None if the worker holds no state.
    """

    type: Literal["entered"] = "entered"
    generation: int | None


class ScriptEnded(Message):
    """The script has ended successfully, without a further loop; the process waits for the order to leave."""

    type: Literal["script_ended"] = "script_ended"
    generation: int | None


class Left(Message):
    """The worker has left the job."""

    type: Literal["left"] = "left"
    generation: int


class FirstStep(Message):
    """The first step of the generation is applied.

    `pause`: time from the last step before the change to the first one after it, less one step, or None for a joiner.
    `phases`: consecutive parts that add up to the pause; the step is subtracted from the part `first_step`.
    """

    type: Literal["first_step"] = "first_step"
    generation: int
    pause: float | None = None
    phases: dict[str, float] = {}


class Committed(Message):
    """The state at `position` is stored in the commit `name`."""

    type: Literal["committed"] = "committed"
    generation: int
    position: Position
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")  # a file name without a folder


class CommitFailed(Message):
    """The state at `position` could not be written; training continues, and the previous commit stays valid."""

    type: Literal["commit_failed"] = "commit_failed"
    generation: int
    position: Position
    reason: str


class CommitUnreadable(Message):
    """The commit or safe state that this worker was to load for a new generation is gone or damaged for good."""

    type: Literal["commit_unreadable"] = "commit_unreadable"
    generation: int
    name: str
    reason: str


class ScriptFailed(Message):
    """The script raised an exception, and the process will end. `error`: type and text of the exception."""

    type: Literal["script_failed"] = "script_failed"
    generation: int
    position: Position
    error: str = Field(max_length=2000)
    traceback: str = Field(max_length=20_000)
    past_help: bool = Field(False, description="whether a retry would fail again, or would hide the fault")


class Progress(Message):
    """The worker's speed and position between boundaries, sent at most once a second."""

    type: Literal["progress"] = "progress"
    generation: int
    position: Position
    samples_per_second: float
    own_seconds: float | None = Field(
        None, ge=0, description="of one step, without waits for other workers; None: not measured yet"
    )


class Whereabouts(Message):
    """Answer to Where: whether the worker `waits` inside a step for its sums, or runs its script.

    `position` is that after the last step that the worker applied.
    """

    type: Literal["whereabouts"] = "whereabouts"
    generation: int
    waits: bool
    position: Position


class StepStatus(Message):
    """Answer to Abort: the worker's phase within its step. `position` is after the last step that the worker applied.

    `phase`: "out" of a step, the worker can leave its group at any time; in "wait", it waits for sums; "held", it has
    the sums and waits for the verdict; "failed", it waits for the verdict without sums. `answered`: number of gradients
    that have been summed in the step. In "wait" the worker sends this as soon as the servers have all its gradients,
    with the numbers `keys`. Workers that have not pushed these keys fill them with zeros, in `windows` parts.
    """

    type: Literal["step_status"] = "step_status"
    generation: int
    phase: Literal["out", "wait", "held", "failed"]
    position: Position
    answered: int = Field(ge=0)
    exchanges: int = Field(0, ge=0, description="number of this generation's exchanges that ended on this worker")
    keys: tuple[int, ...] = ()
    windows: int = Field(1, ge=1)


class Pumped(Message):
    """The order `number` to push zeros is done: the zeros have reached the servers, or were answered with sums.

    `rounds`: number of repeated pushes.
    """

    type: Literal["pumped"] = "pumped"
    generation: int
    number: int = 0
    rounds: int
    seconds: float


class Broken(Message):
    """The worker's sums have failed, which shows before any message that another worker is lost."""

    type: Literal["broken"] = "broken"
    generation: int
    reason: str = Field(max_length=2000)


# ---- to a worker process


class Proceed(Message):
    """Order to continue from `position`; at another position, this is an outdated repetition.

    `commit`: first copy the state at this boundary, then write it in the background and send Committed. `keep`: commits
    that are not deleted; None: unspecified, the newest ones are kept.
    """

    type: Literal["proceed"] = "proceed"
    generation: int
    position: Position
    commit: bool = False
    keep: tuple[str, ...] | None = None


class Source(Message):
    """A member that has the state, or receives it earlier in the same chain, and passes it on."""

    instance_id: str
    host: str
    port: int = Field(ge=1, le=65535)


class LoopOver(Message):
    """A loop over epochs has ended on all workers: the script continues to loop `loop`, which begins at `position`.

    `holds`: the worker's memory has the state for that loop. `writes`: this worker writes the files for all workers.
    """

    type: Literal["loop_over"] = "loop_over"
    generation: int
    loop: int = Field(ge=1)
    position: Position
    holds: bool
    writes: bool = False


class Form(Message):
    """Order to join a generation, as number `number` of `workers`: send Prepared, wait for Go, join, send Formed.

    Then wait for Proceed. Before Go, another order to form may replace this one, because a member was lost.

    The state comes from the instance `source`, which has the state in memory, or first loads `commit` or the safe state
    `safe`. Each other member whose node has this safe state loads it too. A member without the state fetches it from
    the first of its `sources` that answers, with `transfer_token`, and passes it on.
    """

    type: Literal["form"] = "form"
    generation: int
    number: int = Field(ge=0)
    workers: int = Field(ge=1)
    cross_rank: int = Field(0, ge=0, description="number of the worker's node, in Horovod's terms")
    environment: dict[str, str]
    position: Position
    source: str
    transfer_token: SecretStr
    sources: tuple[Source, ...] = Field(
        (), description="members to ask for the state, in this order; empty: it is here"
    )
    receivers: int = Field(0, ge=0, description="number of members without the state")
    clear: bool = Field(False, description="whether the state goes from node to node unencrypted")
    commit: str | None = None
    safe: str | None = None
    checkpoint_dir: str | None = Field(None, description="folder of this job's commits; None: in the job's folder")
    segment_steps: int | None = Field(
        None, ge=1, description="steps between boundaries in mid-epoch; None: boundaries at epoch ends only"
    )

    @property
    def fetch(self) -> bool:
        """Whether this worker needs the state."""
        return bool(self.sources)

    @field_serializer("transfer_token", when_used="json")
    def _in_the_clear(self, token: SecretStr) -> str:
        return token.get_secret_value()


class Go(Message):
    """All members are prepared: join the generation. From now on the generation cannot be cancelled."""

    type: Literal["go"] = "go"
    generation: int


class Leave(Message):
    """Order to drop the kvstore and exit with code 0: at a boundary, or when the job is over.

    At the job's end a worker of another generation does not have the job's result, and must not save its own.
    """

    type: Literal["leave"] = "leave"
    generation: int
    reason: str
    finished: bool = Field(False, description="whether the job has ended successfully, also by its script's stop")
    writes: bool = Field(False, description="whether this worker's script writes the files for all workers")


class Where(Message):
    """Question, after a while without progress, whether the worker waits inside a step. Changes nothing."""

    type: Literal["where"] = "where"
    generation: int


class Abort(Message):
    """A member is lost: begin no further step, push all gradients of the present one, and send StepStatus.

    This order may be repeated.
    """

    type: Literal["abort"] = "abort"
    generation: int


class Pump(Message):
    """Order to push zeros in place of gradients, in the exchange (sum over all workers) in which a worker was lost.

    The gradients have the numbers `keys` (empty: those that this worker waits for), in this `window` of the
    StepStatus's `windows`; None: in all. With `fills`, this worker has not reached the exchange: it pushes its own
    zeros for each key, until the servers have them. Otherwise it pushes the zeros that the lost workers owe for its
    share of the keys, at most `count` for a key, until the servers answer. `workers`: size of the generation, with the
    lost ones.
    """

    type: Literal["pump"] = "pump"
    generation: int
    count: int = Field(1, ge=1)
    number: int = Field(0, ge=0, description="number of the order in this release")
    fills: bool = False
    keys: tuple[int, ...] = ()
    window: int | None = Field(None, ge=0)
    share: int = Field(
        0, ge=0, description="index of this worker's part of the keys, which are divided into `shares` parts"
    )
    shares: int = Field(1, ge=1)
    workers: int = Field(0, ge=0, description="0: unknown")


class StepVerdict(Message):
    """Decision after a loss: steps up to `position` are applied, later steps are void. A Form follows."""

    type: Literal["verdict"] = "verdict"
    generation: int
    position: Position
    exchanges: int = Field(0, ge=0, description="number of exchanges that ended on all surviving workers; 0 if unknown")
