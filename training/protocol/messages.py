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


FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]  # a metric may be NaN if the loss diverges, a time may not


class Message(BaseModel):
    """Base class of all messages on the control channel."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


class Position(Message):
    """A point between two steps, after `offset` samples of the epoch `epoch`, and after `step` steps of the job."""

    epoch: int = Field(ge=0)  # counted from 0
    offset: int = Field(ge=0)  # samples of the epoch that are done
    step: int = Field(ge=0)  # steps since the job began

    @property
    def next_loop_start(self) -> Position:
        """The first position of the next loop over epochs, which begins with a new epoch in any case."""
        return Position(epoch=self.epoch + (self.offset > 0), offset=0, step=self.step)


START = Position(epoch=0, offset=0, step=0)
ENDLESS = 1_000_000_000  # a job with at least so many epochs runs until a person ends it
COMMITS_KEPT = 3  # number of newest commits that are kept, besides the commit that was loaded last


class SafeCopy(Message):
    """A safe state: a complete copy of the training state, in the memory of a node's supervisor.

    The copy was made at `position`, where the generation `generation` began or reached a boundary.
    """

    generation: int  # number of the generation that made the copy
    position: Position  # where the copy was made
    name: str = Field(max_length=100)  # checksum of the copy


class Hello(Message):
    """First message of a node or worker on a connection to the coordinator."""

    protocol: int = PROTOCOL  # the sender's version of the protocol
    cluster: str = Field(max_length=100)  # name of the sender's cluster
    instance_id: str = Field(max_length=100)  # instance on which the sender runs
    private_ip: str = Field(max_length=100)  # address of this instance
    slot: int = Field(0, ge=0, lt=MOST_SLOTS, description="number of the worker process on its node")
    slots: int = Field(1, ge=1, le=MOST_SLOTS, description="number of the node's worker processes")
    identity: SignedDocument | None = None  # signed instance identity document
    proof: str = Field("", max_length=100, repr=False, description="proves that the sender knows the token")

    @property
    def name(self) -> str:
        """The name by which the coordinator knows the process (`protocol.slots`)."""
        return name_of(self.instance_id, self.slot)


# ---- to each new connection


class Challenge(Message):
    """The coordinator's first message on a connection, with a new random value `nonce`."""

    type: Literal["challenge"] = "challenge"
    nonce: str  # random value that the hello must answer


class Refused(Message):
    """The coordinator does not accept the peer's hello, and closes the connection after this message."""

    type: Literal["refused"] = "refused"
    reason: str  # why the hello is refused


# ---- from a worker process


Stage = Literal["stands", "prepares", "creates", "formed", "trains", "waits", "aborted", "free"]  # of a WorkerHello


class LoopTerms(Message):
    """Settings that must be equal on all workers in a loop over epochs."""

    epochs: int = Field(ge=1)  # number of epochs, over the whole job
    samples: int = Field(ge=1)  # samples in an epoch
    drawn_from: int | None = Field(None, ge=1, description="samples of the dataset, if an epoch omits some of them")
    global_batch: int = Field(ge=1)  # samples of a step, over all workers
    seed: int  # seed of the job's random numbers
    batching: str = Field("fixed-global", description="how batch and rate follow the number of workers, or MODULE")
    layout: str = Field(description="digest of the parameters' names, shapes and types: members must agree")
    summed_bytes: int = Field(0, ge=0, description="bytes that a worker sends to all servers in a step")
    loop: int = Field(0, ge=0, description="index of the script's loop over epochs")
    another: bool = Field(False, description="whether another loop may follow; then the job ends with the script")


class WorkerHello(Hello, LoopTerms):
    """First message of a worker on a connection, with the worker's state for a coordinator that may have just started.

    `generation` is the last generation that the worker was ordered to form, or None. `stage` says what the worker does:
    it "stands" by, "prepares" its generation, "creates" the group after the order to go, has "formed", "trains",
    "waits" at a boundary, was "aborted" by an order, or is "free" of its broken group. A worker that "creates" the
    group may be blocked inside ps-lite. The `position` of a free worker is the position of the StepVerdict; the
    `position` of any other worker is that of the last Proceed. `safe` is the newest safe state on the worker's node.
    """

    type: Literal["worker_hello"] = "worker_hello"
    pid: int  # of the worker process
    state_port: int = Field(ge=1, le=65535, description="port at which joiners get this worker's state")
    engine: EngineName = "pslite"  # which engine sums the gradients
    passed: int = Field(0, ge=0, description="number of loops known to be over; between loops more than `loop`")
    generation: int | None = None  # the last generation that the worker was ordered to form
    stage: Stage = "stands"  # what the worker does now
    position: Position | None = None  # of the last Proceed, or of the StepVerdict
    safe: SafeCopy | None = None  # newest safe state of the worker's node


class Prepared(Message):
    """The worker has left its old group, has made a safe state, and waits for the order to go.

    While the worker waits, the coordinator may still order another generation.
    """

    type: Literal["prepared"] = "prepared"
    generation: int  # number of the generation to form


class Fetching(Message):
    """Progress of the transfer of a large state to a worker, in bytes.

    The worker sends this message at the start of the transfer, then once a second.
    """

    type: Literal["fetching"] = "fetching"
    generation: int  # number of the generation to form
    received: int = Field(ge=0)  # bytes that have arrived
    size: int = Field(ge=1)  # bytes of the whole state


class CheckIn(Message):
    """The worker is at a boundary (or at the job's end) and waits for the coordinator's order.

    For each metric, the job's value is the sum of all workers' sums, divided by the sum of all workers' counts.
    """

    type: Literal["check_in"] = "check_in"
    generation: int  # number of the worker's generation
    position: Position  # the boundary at which the worker waits
    pid: int  # of the worker process
    samples: int = Field(0, description="samples that this worker took since its last check-in")
    seconds: float = Field(0.0, description="time since the last check-in without waiting at the boundary")
    stop: bool = Field(False, description="whether this worker's script ends the job here, successfully")
    metrics: dict[str, tuple[float, float]] = Field({}, description="(sum, count) of each metric on this worker")
    silenced: dict[str, str] = Field({}, max_length=100, description="how check rules were silenced, by code or `all`")
    checks: tuple[tuple[str, str], ...] = Field((), description="(name, checksum) of arrays to compare between workers")


class Formed(Message):
    """The worker has joined the new generation and has the state; the state's `digest` must be equal on all workers."""

    type: Literal["formed"] = "formed"
    generation: int  # number of the joined generation
    digest: str  # checksum of the state
    checks: tuple[tuple[str, str], ...] = Field((), description="(name, checksum) of each array in the digest")
    phases: dict[str, float] = Field({}, description="seconds of parts in sequence: teardown, safe, wait, create, ...")
    background: dict[str, float] = Field({}, description="seconds of parallel parts: copy, seal, transfer, digest, ...")


class Entered(LoopTerms):
    """The worker's script has reached its next loop over epochs.

    `generation` is the last generation that the worker was ordered to form, or None if the worker holds no state.
    """

    type: Literal["entered"] = "entered"
    generation: int | None  # number of the last ordered generation, if any


class ScriptEnded(Message):
    """The worker's script has ended without an error or a further loop; the process waits for the order to leave."""

    type: Literal["script_ended"] = "script_ended"
    generation: int | None  # number of the worker's generation, if any


class Left(Message):
    """The worker has left the job, as the coordinator ordered."""

    type: Literal["left"] = "left"
    generation: int  # number of the worker's last generation


class FirstStep(Message):
    """The worker has applied the first step of its generation.

    `pause` is the time in seconds from the old generation's last step to the new generation's first step, less the
    duration of one step. `phases` contains the seconds of the pause's consecutive parts; the duration of one step is
    subtracted from the part `first_step`.
    """

    type: Literal["first_step"] = "first_step"
    generation: int  # number of the worker's generation
    pause: float | None = None  # seconds of the training's pause; None for a worker that joins
    phases: dict[str, float] = {}  # seconds of each part of the pause


class Committed(Message):
    """The state at `position` is stored in the commit `name`."""

    type: Literal["committed"] = "committed"
    generation: int  # number of the generation that wrote the commit
    position: Position  # where the stored state was copied
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")  # a file name without a folder


class CommitFailed(Message):
    """The state at `position` could not be written; training continues, and the previous commit stays valid."""

    type: Literal["commit_failed"] = "commit_failed"
    generation: int  # number of the worker's generation
    position: Position  # of the state that was not written
    reason: str  # why the state was not written


class CommitUnreadable(Message):
    """The commit or safe state that this worker was to load for a new generation is missing or damaged for good."""

    type: Literal["commit_unreadable"] = "commit_unreadable"
    generation: int  # number of the generation to form
    name: str  # name of the commit or safe state
    reason: str  # why the commit or safe state cannot be read


class ScriptFailed(Message):
    """The worker's script raised an exception, and the process will exit.

    `error` contains the exception's type and text.
    """

    type: Literal["script_failed"] = "script_failed"
    generation: int  # number of the worker's generation
    position: Position  # after the last applied step
    error: str = Field(max_length=2000)  # the exception's type and text
    traceback: str = Field(max_length=20_000)  # of the script's exception
    past_help: bool = Field(False, description="whether a retry would fail again, or would hide the fault")


class Progress(Message):
    """The worker's speed and position between boundaries, sent at most once a second."""

    type: Literal["progress"] = "progress"
    generation: int  # number of the worker's generation
    position: Position  # after the last applied step
    samples_per_second: float  # speed of this worker
    own_seconds: float | None = Field(None, ge=0, description="of one step, without waiting for other workers")


class Whereabouts(Message):
    """Answer to Where: whether the worker `waits` in a step for the summed gradients; otherwise it runs its script.

    The position after the last step that the worker applied is `position`.
    """

    type: Literal["whereabouts"] = "whereabouts"
    generation: int  # number of the worker's generation
    waits: bool  # whether the worker waits inside a step
    position: Position  # after the last applied step


class StepStatus(Message):
    """Answer to the order Abort: the worker's phase within its step.

    The `position` is the position after the last step that the worker has applied. `phase` is "out" if the worker is
    outside of a step, and can leave its group at any time; it is "wait" if the worker waits for summed gradients.
    `phase` is "held" if the worker has the sums and waits for the verdict, and "failed" if it waits for the verdict
    without sums. `answered` is the number of gradients that have been summed in the step. In the phase "wait" the
    worker sends this message when the servers have all its gradients, whose numbers are `keys`. Workers that have not
    pushed gradients for `keys` push zeros for these keys, in `windows` parts.
    """

    type: Literal["step_status"] = "step_status"
    generation: int  # number of the worker's generation
    phase: Literal["out", "wait", "held", "failed"]  # of the worker's step
    position: Position  # after the last applied step
    answered: int = Field(ge=0)  # number of the step's gradients that have been summed
    exchanges: int = Field(0, ge=0, description="number of this generation's exchanges that ended on this worker")
    keys: tuple[int, ...] = ()  # numbers of the worker's gradients
    windows: int = Field(1, ge=1)  # number of parts in which other workers push zeros


class Pumped(Message):
    """The worker has carried out the order Pump with this `number`.

    The worker's zeros have reached the servers, or were answered with sums. `rounds` is the number of times that the
    zeros were pushed again.
    """

    type: Literal["pumped"] = "pumped"
    generation: int  # number of the worker's generation
    number: int = 0  # number of the Pump
    rounds: int  # number of repeated pushes
    seconds: float  # duration of the pushes


class Broken(Message):
    """The summation of this worker's gradients has failed, which is an early sign that another worker is lost."""

    type: Literal["broken"] = "broken"
    generation: int  # number of the worker's generation
    reason: str = Field(max_length=2000)  # why the summation failed


# ---- to a worker process


class Proceed(Message):
    """Order to continue from `position`; a worker at another position ignores the order as an outdated repetition.

    With `commit`, the worker also copies the state, writes the copy in the background as a commit, and then sends
    Committed.
    """

    type: Literal["proceed"] = "proceed"
    generation: int  # number of the generation that proceeds
    position: Position  # where the training continues
    commit: bool = False  # whether to write a commit of the state at `position`
    keep: tuple[str, ...] | None = None  # commits that are not deleted; None: the newest commits


class Source(Message):
    """A member from which another member can fetch the state.

    The source has the state, or receives the state earlier in the same chain of members.
    """

    instance_id: str  # member that has the state
    host: str  # address of the member
    port: int = Field(ge=1, le=65535)  # port at which the member sends the state


class LoopOver(Message):
    """A loop over epochs has ended: the script continues to the loop with index `loop`, which begins at `position`.

    `holds` says whether the worker's memory contains the state for the next loop. `writes` says whether this worker
    writes files for all workers.
    """

    type: Literal["loop_over"] = "loop_over"
    generation: int  # number of the generation whose loop is over
    loop: int = Field(ge=1)  # index of the next loop
    position: Position  # where the next loop begins
    holds: bool  # whether the worker's memory contains the state
    writes: bool = False  # whether this worker writes files for all workers


class Form(Message):
    """Order to join a new generation of `workers` members. The receiver is the member with the rank `number`.

    The worker sends Prepared, waits for Go, joins the group, sends Formed, and waits for Proceed. Before Go, another
    Form may replace this order, because a member was lost.

    The state comes from the instance `source`, which has the state in memory, or first loads the commit `commit` or the
    safe state `safe`. Each member whose node has the safe state `safe` loads this safe state. A member without the
    state fetches the state, authorized by `transfer_token`, from the first of its `sources` that answers. A member that
    has fetched the state passes the state on to other members.
    """

    type: Literal["form"] = "form"
    generation: int  # number of the generation to form
    number: int = Field(ge=0)  # rank of the worker
    workers: int = Field(ge=1)  # size of the generation
    cross_rank: int = Field(0, ge=0, description="number of the worker's node, in Horovod's terms")
    environment: dict[str, str]  # variables for joining the group
    position: Position  # where the generation starts
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
        """Whether this worker must fetch the state from another member."""
        return bool(self.sources)

    @field_serializer("transfer_token", when_used="json")
    def _token_in_clear_text(self, token: SecretStr) -> str:
        return token.get_secret_value()


class Go(Message):
    """Order to join the generation, as all members are prepared.

    After this order the generation cannot be cancelled.
    """

    type: Literal["go"] = "go"
    generation: int  # number of the generation to join


class Leave(Message):
    """Order to close the kvstore and exit with code 0, given at a boundary or when the job is over.

    At the job's end, a worker whose generation is not this order's `generation` does not have the job's result, and
    must not save a result.
    """

    type: Literal["leave"] = "leave"
    generation: int  # number of the last generation, or 0
    reason: str  # why the worker must leave
    finished: bool = Field(False, description="whether the job has ended successfully, also by its script's stop")
    writes: bool = Field(False, description="whether this worker's script writes the files for all workers")


class Where(Message):
    """Question, after a time without progress, whether the worker waits inside a step. Changes nothing."""

    type: Literal["where"] = "where"
    generation: int  # number of the generation that is asked


class Abort(Message):
    """Order after a loss: begin no further step, push all gradients of the present step, and send StepStatus.

    The coordinator may send this order several times.
    """

    type: Literal["abort"] = "abort"
    generation: int  # number of the generation that lost a worker


class Pump(Message):
    """Order to push zeros in place of gradients, in the exchange (sum over all workers) in which a worker was lost.

    The gradients have the numbers `keys`; empty `keys` mean the gradients for which this worker waits. Zeros are pushed
    only for the part `window` of the keys, out of the `windows` parts in StepStatus, or for all parts if `window` is
    None. With `fills`, this worker has not reached the exchange, so it pushes zeros in place of its own gradients until
    the servers have these zeros. Without `fills`, this worker pushes zeros in place of the lost workers' gradients, for
    its share of the keys, until the servers answer. At most `count` zeros are pushed for a key.
    """

    type: Literal["pump"] = "pump"
    generation: int  # number of the generation that lost a worker
    count: int = Field(1, ge=1)  # the most zeros for a key
    number: int = Field(0, ge=0, description="number of the order in this release")
    fills: bool = False  # whether this worker has not reached the exchange
    keys: tuple[int, ...] = ()  # numbers of gradients
    window: int | None = Field(None, ge=0)  # part of the exchange; None: all parts
    share: int = Field(0, ge=0, description="index of this worker's part, if the keys are divided into `shares` parts")
    shares: int = Field(1, ge=1)  # number of parts into which the keys are divided
    workers: int = Field(0, ge=0, description="size of the generation, with the lost workers; 0: unknown")


class StepVerdict(Message):
    """Decision after the loss of a worker: steps up to `position` are valid on all workers, later steps are void.

    The order Form follows this message.
    """

    type: Literal["verdict"] = "verdict"
    generation: int  # number of the generation that lost a worker
    position: Position  # after the last valid step
    exchanges: int = Field(0, ge=0, description="number of exchanges that ended on all surviving workers; 0 if unknown")
