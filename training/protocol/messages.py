"""Messages between the coordinator and worker processes, and the base classes of all control-channel messages.

The messages of node supervisors are in `node_messages`. Each message is one JSON text of at most `MAX_BYTES`, with its
kind in `type`. Each hello names its `PROTOCOL`; the coordinator refuses other versions. The coordinator opens each
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

PROTOCOL = 5  # version of the control channel's protocol
MAX_BYTES = 256 * 1024  # maximum size of a message
MODULE = "module"  # value of `batching` for a job whose script divides its data itself


Finite = Annotated[float, Field(allow_inf_nan=False)]  # a metric may be NaN if the loss diverges, a time may not


class Message(BaseModel):
    """Base class of all messages."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


class Position(Message):
    """A point between two steps: `offset` samples of `epoch` are done, and `step` steps since the job began."""

    epoch: int = Field(ge=0)  # counted from 0
    offset: int = Field(ge=0)  # samples of the epoch that are done
    step: int = Field(ge=0)  # steps since the job began

    @property
    def next_loop(self) -> Position:
        """The first position of the next loop: a new epoch, even if the present loop ended within an epoch."""
        return Position(epoch=self.epoch + (self.offset > 0), offset=0, step=self.step)


START = Position(epoch=0, offset=0, step=0)
ENDLESS = 1_000_000_000  # a job with at least so many epochs runs until a person ends it
COMMITS_KEPT = 3  # number of newest commits that are kept, besides the commit that was loaded last


class SafeCopy(Message):
    """A safe state: a complete copy of the training state, in the memory of a node's supervisor.

    The copy was made at `position`, where `generation` began or reached a boundary.
    """

    generation: int
    position: Position
    name: str = Field(max_length=100)  # checksum of the copy


class Hello(Message):
    """First message of a node or worker."""

    protocol: int = PROTOCOL
    cluster: str = Field(max_length=100)
    instance_id: str = Field(max_length=100)
    private_ip: str = Field(max_length=100)
    slot: int = Field(0, ge=0, lt=MOST_SLOTS, description="number of the worker process on its node")
    slots: int = Field(1, ge=1, le=MOST_SLOTS, description="number of the node's worker processes")
    identity: SignedDocument | None = None  # signed instance identity document
    proof: str = Field("", max_length=100, repr=False, description="proves that the sender knows the token")

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


Stage = Literal["stands", "prepares", "creates", "formed", "trains", "waits", "aborted", "free"]  # of a WorkerHello


class LoopTerms(Message):
    """Settings that must be equal on all workers in a loop over epochs."""

    epochs: int = Field(ge=1)  # number of epochs, over the whole job
    samples: int = Field(ge=1)  # samples in an epoch
    drawn_from: int | None = Field(None, ge=1, description="samples of the dataset, if an epoch omits some of them")
    global_batch: int = Field(ge=1)  # samples of a step, over all workers
    seed: int
    batching: str = Field("fixed-global", description="how batch and rate follow the number of workers, or MODULE")
    layout: str = Field(description="digest of the parameters' names, shapes and types: members must agree")
    summed_bytes: int = Field(0, ge=0, description="bytes that a worker sends to all servers in a step")
    loop: int = Field(0, ge=0, description="index of the script's loop over epochs")
    another: bool = Field(False, description="whether another loop may follow; then the job ends with the script")


class WorkerHello(Hello, LoopTerms):
    """State of a worker, for a coordinator that lost the connection or has just started.

    `generation` is the last generation that the worker was ordered to form, or None. `stage`: the worker "stands" by;
    "prepares" its generation; "creates" the group after the order to go, perhaps inside ps-lite; has "formed";
    "trains"; "waits" at a boundary; was "aborted" by an order; or is "free" of its broken group. The `position` of a
    free worker is the verdict's, otherwise the last Proceed's. `safe`: the node's newest safe state.
    """

    type: Literal["worker_hello"] = "worker_hello"
    pid: int
    state_port: int = Field(ge=1, le=65535, description="port at which joiners get this worker's state")
    engine: EngineName = "pslite"
    passed: int = Field(0, ge=0, description="number of loops known to be over; between loops more than `loop`")
    generation: int | None = None  # the last generation that the worker was ordered to form
    stage: Stage = "stands"  # what the worker does now
    position: Position | None = None
    safe: SafeCopy | None = None  # newest safe state of the worker's node


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
    received: int = Field(ge=0)  # bytes
    size: int = Field(ge=1)  # bytes of the whole state


class CheckIn(Message):
    """The worker is at a boundary (or at the job's end) and waits for the coordinator's order.

    The job's value of a metric is the sum of all workers' sums, divided by the sum of their counts.
    """

    type: Literal["check_in"] = "check_in"
    generation: int
    position: Position
    pid: int
    samples: int = Field(0, description="samples that this worker took since its last check-in")
    seconds: float = Field(0.0, description="time since the last check-in without waiting at the boundary")
    stop: bool = Field(False, description="whether this worker's script ends the job here, successfully")
    metrics: dict[str, tuple[float, float]] = Field({}, description="(sum, count) of each metric on this worker")
    silenced: dict[str, str] = Field({}, max_length=100, description="how check rules were silenced, by code or `all`")
    checks: tuple[tuple[str, str], ...] = Field((), description="(name, checksum) of arrays to compare between workers")


class Formed(Message):
    """The worker has joined the new generation, with the state, whose `digest` must be equal on all workers."""

    type: Literal["formed"] = "formed"
    generation: int
    digest: str  # checksum of the state
    checks: tuple[tuple[str, str], ...] = Field((), description="(name, checksum) of each array in the digest")
    phases: dict[str, float] = Field({}, description="seconds of parts in sequence: teardown, safe, wait, create, ...")
    background: dict[str, float] = Field({}, description="seconds of parallel parts: copy, seal, transfer, digest, ...")


class Entered(LoopTerms):
    """The script has reached its next loop over epochs.

    `generation`: the last generation that the worker was ordered to form, or None if the worker holds no state.
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

    `pause`: seconds from the last step of the old generation to this step, less one step's duration. `phases`: seconds
    of consecutive parts that add up to the pause; the step's duration is subtracted from the part `first_step`.
    """

    type: Literal["first_step"] = "first_step"
    generation: int
    pause: float | None = None  # seconds; None for a worker that joins
    phases: dict[str, float] = {}  # seconds of each part of the pause


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
    name: str  # name of the commit or safe state
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
    own_seconds: float | None = Field(None, ge=0, description="of one step, without waiting for other workers")


class Whereabouts(Message):
    """Answer to Where: whether the worker `waits` inside a step for the summed gradients, or runs its script.

    `position` follows the last step that the worker applied.
    """

    type: Literal["whereabouts"] = "whereabouts"
    generation: int
    waits: bool  # whether the worker waits inside a step
    position: Position


class StepStatus(Message):
    """Answer to Abort: the worker's phase within its step. `position` follows the last step that the worker applied.

    `phase`: "out" of a step, the worker can leave its group at any time; in "wait", it waits for sums; "held", it has
    the sums and waits for the verdict; "failed", it waits for the verdict without sums. `answered`: number of gradients
    that have been summed in the step. In "wait" the worker sends this message when the servers have all its gradients,
    with the numbers `keys`. Workers that have not pushed these keys fill them with zeros, in `windows` parts.
    """

    type: Literal["step_status"] = "step_status"
    generation: int
    phase: Literal["out", "wait", "held", "failed"]
    position: Position
    answered: int = Field(ge=0)  # number of the step's gradients that have been summed
    exchanges: int = Field(0, ge=0, description="number of this generation's exchanges that ended on this worker")
    keys: tuple[int, ...] = ()  # numbers of the worker's gradients
    windows: int = Field(1, ge=1)  # number of parts in which other workers push zeros


class Pumped(Message):
    """The order `number` to push zeros is done: the zeros have reached the servers, or were answered with sums.

    `rounds`: number of repeated pushes.
    """

    type: Literal["pumped"] = "pumped"
    generation: int
    number: int = 0  # number of the Pump
    rounds: int  # number of repeated pushes
    seconds: float  # duration


class Broken(Message):
    """The summation of the worker's gradients has failed, an early sign that another worker is lost."""

    type: Literal["broken"] = "broken"
    generation: int
    reason: str = Field(max_length=2000)


# ---- to a worker process


class Proceed(Message):
    """Order to continue from `position`; for a worker at another position, this is an outdated repetition.

    With `commit`, the worker first copies the state, then writes the copy in the background and sends Committed.
    """

    type: Literal["proceed"] = "proceed"
    generation: int
    position: Position
    commit: bool = False  # whether to write a commit of the state at `position`
    keep: tuple[str, ...] | None = None  # commits that are not deleted; None: the newest commits


class Source(Message):
    """A member that has the state, or receives it earlier in the same chain, and passes it on."""

    instance_id: str
    host: str
    port: int = Field(ge=1, le=65535)


class LoopOver(Message):
    """A loop over epochs has ended on all workers: the script continues to loop `loop`, which begins at `position`.

    `holds`: the worker's memory contains the state for the next loop. `writes`: this worker writes files for all
    workers.
    """

    type: Literal["loop_over"] = "loop_over"
    generation: int
    loop: int = Field(ge=1)  # index of the next loop
    position: Position
    holds: bool  # whether the worker's memory contains the state
    writes: bool = False  # whether this worker writes files for all workers


class Form(Message):
    """Order to join a generation, as number `number` of `workers`: send Prepared, wait for Go, join, send Formed.

    Then wait for Proceed. Before Go, a new order to form may replace this order, because a member was lost.

    The state comes from the instance `source`, which has the state in memory, or first loads `commit` or the safe state
    `safe`. Each member whose node has this safe state loads it. A member without the state fetches the state from the
    first of its `sources` that answers, with `transfer_token`, and passes the state on.
    """

    type: Literal["form"] = "form"
    generation: int
    number: int = Field(ge=0)  # rank of the worker
    workers: int = Field(ge=1)  # size of the generation
    cross_rank: int = Field(0, ge=0, description="number of the worker's node, in Horovod's terms")
    environment: dict[str, str]  # variables for joining the group
    position: Position
    source: str  # instance from which the state comes
    transfer_token: SecretStr  # secret for fetching the state
    sources: tuple[Source, ...] = Field((), description="members to ask for the state, in order; empty: it is here")
    receivers: int = Field(0, ge=0, description="number of members without the state")
    clear: bool = Field(False, description="whether the state goes from node to node unencrypted")
    commit: str | None = None  # commit to load
    safe: str | None = None  # safe state to load
    checkpoint_dir: str | None = Field(None, description="folder of this job's commits; None: in the job's folder")
    segment_steps: int | None = Field(None, ge=1, description="steps between boundaries; None: only at epoch ends")

    @property
    def fetch(self) -> bool:
        """Whether this worker must fetch the state."""
        return bool(self.sources)

    @field_serializer("transfer_token", when_used="json")
    def _token_in_clear_text(self, token: SecretStr) -> str:
        return token.get_secret_value()


class Go(Message):
    """All members are prepared: join the generation. From now on the generation cannot be cancelled."""

    type: Literal["go"] = "go"
    generation: int


class Leave(Message):
    """Order to drop the kvstore and exit with code 0: at a boundary, or when the job is over.

    At the job's end a worker of another generation does not have the job's result, and must not save a result of its
    own.
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
    """A member is lost: begin no further step, push all gradients of the present step, and send StepStatus.

    This order may be repeated.
    """

    type: Literal["abort"] = "abort"
    generation: int


class Pump(Message):
    """Order to push zeros in place of gradients, in the exchange (sum over all workers) in which a worker was lost.

    The gradients have the numbers `keys` (empty: the gradients for which this worker waits), in this `window` of the
    StepStatus's `windows` (None: in all windows). With `fills`, this worker has not reached the exchange, and pushes
    its own zeros for each key, until the servers have these zeros. Without `fills`, this worker pushes the zeros that
    the lost workers owe for its share of the keys, at most `count` for a key, until the servers answer.
    """

    type: Literal["pump"] = "pump"
    generation: int
    count: int = Field(1, ge=1)  # the most zeros for a key
    number: int = Field(0, ge=0, description="number of the order in this release")
    fills: bool = False  # whether this worker has not reached the exchange
    keys: tuple[int, ...] = ()  # numbers of gradients
    window: int | None = Field(None, ge=0)  # part of the exchange; None: all parts
    share: int = Field(0, ge=0, description="index of this worker's part, if the keys are divided into `shares` parts")
    shares: int = Field(1, ge=1)  # number of parts into which the keys are divided
    workers: int = Field(0, ge=0, description="size of the generation, with the lost workers; 0: unknown")


class StepVerdict(Message):
    """Decision after a loss: steps up to `position` are applied, later steps are void. A Form follows."""

    type: Literal["verdict"] = "verdict"
    generation: int
    position: Position
    exchanges: int = Field(0, ge=0, description="number of exchanges that ended on all surviving workers; 0 if unknown")
