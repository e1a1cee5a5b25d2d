"""Messages between the coordinator and worker processes, and what all messages of the control channel have in common.

Those of node supervisors are in `node_messages`. Each is one JSON text of at most `MAX_BYTES`, with its kind in `type`.
`PROTOCOL` is in all hellos; the coordinator refuses other versions. The coordinator opens each connection with a
challenge, which a hello must answer (`admission` says what it proves). Times are seconds since the epoch.
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
    """Base of all messages."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


class Position(Message):
    """A point between two steps: `offset` samples of `epoch` are done, `step` steps since the job began."""

    epoch: int = Field(ge=0)
    offset: int = Field(ge=0)
    step: int = Field(ge=0)

    @property
    def next_loop(self) -> Position:
        """Where a following loop begins: with a new epoch, also after a loop that ended within its last one."""
        return Position(epoch=self.epoch + (self.offset > 0), offset=0, step=self.step)


START = Position(epoch=0, offset=0, step=0)
ENDLESS = 1_000_000_000  # with at least so many epochs, a job runs until a person ends it
COMMITS_KEPT = 3  # newest commits that are kept, besides the one that the job last started from


class SafeCopy(Message):
    """A complete state in memory of a node's supervisor, with the checksum `name`.

    It is the state at `position`, where `generation` began or came to a boundary.
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
    slot: int = Field(0, ge=0, lt=MOST_SLOTS, description="which of the node's processes it is, or keeps")
    slots: int = Field(1, ge=1, le=MOST_SLOTS, description="how many worker processes the node has")
    identity: SignedDocument | None = None
    proof: str = Field(
        "", max_length=100, repr=False, description="that the sender knows the token; made for one connection"
    )

    @property
    def name(self) -> str:
        """The process's name for the coordinator (`protocol.slots`)."""
        return name_of(self.instance_id, self.slot)


# ---- to each new connection


class Challenge(Message):
    """First message on a connection, with a fresh `nonce`."""

    type: Literal["challenge"] = "challenge"
    nonce: str


class Refused(Message):
    """The hello is not accepted; the connection is closed afterwards."""

    type: Literal["refused"] = "refused"
    reason: str


# ---- from a worker process


Stage = Literal["stands", "prepares", "creates", "formed", "trains", "waits", "aborted", "free"]


class LoopTerms(Message):
    """What all workers must agree on in a loop over epochs; `epochs` are counted over the whole job."""

    epochs: int = Field(ge=1)
    samples: int = Field(ge=1)
    drawn_from: int | None = Field(
        None, ge=1, description="samples of the dataset, where each epoch leaves out what fills no batch"
    )
    global_batch: int = Field(ge=1)
    seed: int
    batching: str = Field(
        "fixed-global", description="how batch and rate follow the number of workers, in words, or MODULE"
    )
    layout: str = Field(description="digest of the parameters' names, shapes and types: members must agree")
    summed_bytes: int = Field(0, ge=0, description="of what is summed in a step: what a worker sends to all servers")
    loop: int = Field(0, ge=0, description="which of the script's loops over epochs, one after another")
    another: bool = Field(False, description="whether another may follow: then the job ends with the script")


class WorkerHello(Hello, LoopTerms):
    """State of a worker, for a coordinator that lost the connection or has just started.

    `stage`: stands by; prepares the generation it was last ordered to form; creates it after the order to go, possibly
    inside ps-lite; formed; trains; waits at a boundary; aborted by order; or free of its broken group, at the verdict's
    `position`. In the other stages `position` is that of the last order to proceed. `generation`: the one it was last
    ordered to form, None before the first. `safe`: newest safe state of its node, of this process or an earlier one.
    """

    type: Literal["worker_hello"] = "worker_hello"
    pid: int
    state_port: int = Field(ge=1, le=65535, description="where this worker hands its state to joiners")
    engine: EngineName = "pslite"
    passed: int = Field(0, ge=0, description="loops that it knows to be over: more than `loop` on its way to the next")
    generation: int | None = None
    stage: Stage = "stands"
    position: Position | None = None
    safe: SafeCopy | None = None


class Prepared(Message):
    """The worker has left its old group, its state, if it has one, is safe, and it waits for the order to go.

    It may still be ordered to form another generation.
    """

    type: Literal["prepared"] = "prepared"
    generation: int


class Fetching(Message):
    """Progress of a large state's transfer to a worker, in bytes: sent at the order, then once a second."""

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
    samples: int = Field(0, description="samples this worker took since the last check-in")
    seconds: float = Field(0.0, description="time since the last check-in without waiting at the boundary")
    stop: bool = Field(False, description="whether this worker's script wants the job to end here, well")
    metrics: dict[str, tuple[float, float]] = Field(
        {}, description="name: (sum, count) over this worker's share; merged as sum of sums / sum of counts"
    )
    silenced: dict[str, str] = Field(
        {}, description="rules of the script's checks that were silenced, or all: how", max_length=100
    )
    checks: tuple[tuple[str, str], ...] = Field(
        (), description="(name, checksum of a few values) of each array that must be equal on all workers"
    )


class Formed(Message):
    """The worker is in the new generation, with its state; `digest` covers what must be equal on all workers."""

    type: Literal["formed"] = "formed"
    generation: int
    digest: str
    checks: tuple[tuple[str, str], ...] = Field((), description="(name, checksum) of each array that it covers")
    phases: dict[str, float] = Field(
        {}, description="seconds of what was done one after another: teardown, safe, wait, create, init, state"
    )
    background: dict[str, float] = Field(
        {}, description="seconds of what was done beside them: copy and seal, or transfer and install; digest"
    )


class Entered(LoopTerms):
    """The script has reached its next loop over epochs.

    `generation`: the last one that the worker was ordered to form; None if it holds no state.
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

    `pause`: from the last old step to the first new one, less one step; None for a joiner. `phases`: consecutive parts
    of the pause, which add up to it; the step is subtracted from `first_step`.
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
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")  # a file of the commits' folder, and of no other


class CommitFailed(Message):
    """The state at `position` could not be written; training continues, and the previous commit stands."""

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
    """The script raised; the process is about to end. `error`, type and text, tells two failures apart."""

    type: Literal["script_failed"] = "script_failed"
    generation: int
    position: Position
    error: str = Field(max_length=2000)
    traceback: str = Field(max_length=20_000)
    past_help: bool = Field(
        False, description="whether another try would lead to the same, or would hide what is wrong"
    )


class Progress(Message):
    """Sign of life between boundaries, at most once a second."""

    type: Literal["progress"] = "progress"
    generation: int
    position: Position
    samples_per_second: float
    own_seconds: float | None = Field(
        None, ge=0, description="of one step, without waiting for the others; None: not measured yet"
    )


class Whereabouts(Message):
    """Answer to Where: whether the worker is inside a step and waits for its sums, or in its script.

    `position` is after the last step it applied.
    """

    type: Literal["whereabouts"] = "whereabouts"
    generation: int
    waits: bool
    position: Position


class StepStatus(Message):
    """Answer to Abort: where the worker is in its step. `position` is after the last step it applied.

    `answered` counts the gradients of the step it waits for. `out` of a step it can leave at any time; `held` or
    `failed` it only waits for the verdict, with the sums, or without them and none to come. A waiting worker sends this
    once the servers have all that it pushed: these `keys`, which workers that have not pushed them fill in so many
    `windows`.
    """

    type: Literal["step_status"] = "step_status"
    generation: int
    phase: Literal["out", "wait", "held", "failed"]
    position: Position
    answered: int = Field(ge=0)
    exchanges: int = Field(0, ge=0, description="of this generation that have come to their end here")
    keys: tuple[int, ...] = ()
    windows: int = Field(1, ge=1)


class Pumped(Message):
    """The order to push zeros of this `number` is done: the fillings have reached the servers, missing pushes are
    answered.

    `rounds`: how often something was pushed again.
    """

    type: Literal["pumped"] = "pumped"
    generation: int
    number: int = 0
    rounds: int
    seconds: float


class Broken(Message):
    """The worker's sums are lost, which tells it before any message that another worker is gone."""

    type: Literal["broken"] = "broken"
    generation: int
    reason: str = Field(max_length=2000)


# ---- to a worker process


class Proceed(Message):
    """Continue from `position`; for another position it is an outdated repetition.

    `commit`: first copy the state at this boundary, then write it in the background and send Committed. `keep`: commits
    that stay when older ones are deleted; None: unspecified, the newest stay.
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
    """The script's loop over epochs is over for all: the script goes on to loop `loop`, which begins at `position`.

    `holds`: the worker's memory has the state it begins with. `writes`: this worker writes the files that are for all.
    """

    type: Literal["loop_over"] = "loop_over"
    generation: int
    loop: int = Field(ge=1)
    position: Position
    holds: bool
    writes: bool = False


class Form(Message):
    """Join generation `generation` as number `number` of `workers`: send Prepared, wait for Go, join, send Formed.

    Then wait for Proceed. Until Go comes, another order to form may replace this one: a member was lost, this
    generation is void.

    The state comes from `source` (an instance id), which has it in memory, or first loads `commit` or the `safe` state
    of this name, as does every member that has that one. A member without the state of `position` has `sources`: it
    fetches from the first that answers, with `transfer_token`, and passes it on.
    """

    type: Literal["form"] = "form"
    generation: int
    number: int = Field(ge=0)
    workers: int = Field(ge=1)
    cross_rank: int = Field(0, ge=0, description="which of the nodes it is on, in Horovod's terms")
    environment: dict[str, str]
    position: Position
    source: str
    transfer_token: SecretStr
    sources: tuple[Source, ...] = Field((), description="whom to ask for the state, in this order; none: it is here")
    receivers: int = Field(0, ge=0, description="how many members lack the state")
    clear: bool = Field(False, description="whether the state goes from node to node unencrypted")
    commit: str | None = None
    safe: str | None = None
    checkpoint_dir: str | None = Field(
        None, description="where this job's commits are; None: in its folder on the shared volume"
    )
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
    """All members are prepared: join the generation. From now on no member can be called back."""

    type: Literal["go"] = "go"
    generation: int


class Leave(Message):
    """Drop the store and exit with code 0: at a boundary after a change of membership, or when the job is over.

    At the job's end a worker of another generation has not reached the job's result, and must not keep its own.
    """

    type: Literal["leave"] = "leave"
    generation: int
    reason: str
    finished: bool = Field(False, description="whether the job has come to its end, or to where its script stopped it")
    writes: bool = Field(False, description="whether this worker's script writes what is for all; one of them does")


class Where(Message):
    """No worker has made progress for a while: report where you are. Changes nothing."""

    type: Literal["where"] = "where"
    generation: int


class Abort(Message):
    """A member of the generation is lost: begin no further step, issue the present one completely, report where you
    are.

    May be repeated.
    """

    type: Literal["abort"] = "abort"
    generation: int


class Pump(Message):
    """Push zeros for the gradients of the exchange in which a worker was lost.

    They are those of the numbers `keys` (none: those that this worker waits for) in this `window` of as many as all
    say; None: all of them. `fills`: this worker has not come to the exchange, and pushes one for each in its own place,
    until the servers have them. Otherwise it pushes what the lost workers owe, at most `count`, for its share of the
    keys, until they are answered. `workers`: size of the generation, with the lost ones.
    """

    type: Literal["pump"] = "pump"
    generation: int
    count: int = Field(1, ge=1)
    number: int = Field(0, ge=0, description="of the order in this release")
    fills: bool = False
    keys: tuple[int, ...] = ()
    window: int | None = Field(None, ge=0)
    share: int = Field(0, ge=0, description="of so many `shares`, into which the keys are divided alike on all")
    shares: int = Field(1, ge=1)
    workers: int = Field(0, ge=0, description="0: not told")


class StepVerdict(Message):
    """A worker inside a step that leads to `position` or before it applies it; later steps are void. A Form follows."""

    type: Literal["verdict"] = "verdict"
    generation: int
    position: Position
    exchanges: int = Field(0, ge=0, description="that ended on all survivors; 0 also where it is not known any more")
