"""The messages of the control channel between the coordinator and worker processes, and what all messages have in
common; those of node supervisors are in `node_messages`.

One JSON text message each, at most `MAX_BYTES`, told apart by `type`. `PROTOCOL` is in both hellos; the coordinator
refuses others. The coordinator begins each connection with a challenge, the answer must be a hello (`admission` says
what it proves). Times are seconds since the epoch.
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


Finite = Annotated[float, Field(allow_inf_nan=False)]  # a metric may be NaN, when the loss diverges; a time may not


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


class Position(Message):
    """A point between two steps: `offset` samples of `epoch` are done, `step` steps since the job began."""

    epoch: int = Field(ge=0)
    offset: int = Field(ge=0)
    step: int = Field(ge=0)

    @property
    def next_loop(self) -> Position:
        """Where a loop that follows begins: with an epoch of its own, also after one that was ended within its last."""
        return Position(epoch=self.epoch + (self.offset > 0), offset=0, step=self.step)


START = Position(epoch=0, offset=0, step=0)
ENDLESS = 1_000_000_000  # so many epochs, or more, are meant to go on until somebody ends the job
COMMITS_KEPT = 3  # the newest that the coordinator can go back to, beside the one that the job last started from


class SafeCopy(Message):
    """A whole state in memory of a node's supervisor: that of `position`, where `generation` began or came to a
    boundary. `name` is its checksum.
    """

    generation: int
    position: Position
    name: str = Field(max_length=100)


class Hello(Message):
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
        """By which the coordinator knows the process (`protocol.slots`)."""
        return name_of(self.instance_id, self.slot)


# ---- to whoever connects


class Challenge(Message):
    """The first word on a connection: `nonce` was never used before."""

    type: Literal["challenge"] = "challenge"
    nonce: str


class Refused(Message):
    """The hello was not accepted; the connection is closed after it."""

    type: Literal["refused"] = "refused"
    reason: str


# ---- from a worker process


Stage = Literal["stands", "prepares", "creates", "formed", "trains", "waits", "aborted", "free"]


class LoopTerms(Message):
    """What all workers must have in common in a loop over epochs; `epochs` are counted over the whole job."""

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
    """Where the worker is, so that a coordinator that lost the connection, or is another process now, goes on from
    there.

    `stage`: it stands by; prepares the generation that it was last ordered to form; was told to go, and may be inside
    ps-lite; has formed; trains; waits at a boundary; was told to abort; or is free of its broken group, at the
    verdict's `position`. In the other stages `position` is where it was last told to step on from. `generation` is the
    one it was last ordered to form, None before the first. `safe` is the newest safe state of its node, of this process
    or an earlier one.
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
    """The worker is out of its old group and its state, if it holds it, is safe: it waits for the word to go, and can
    still be told to form another generation.
    """

    type: Literal["prepared"] = "prepared"
    generation: int


class Fetching(Message):
    """How far a large state has come to a worker, in bytes: said when the order is taken, then once a second."""

    type: Literal["fetching"] = "fetching"
    generation: int
    received: int = Field(ge=0)
    size: int = Field(ge=1)


class CheckIn(Message):
    """The worker stands at a boundary (or at the end of the job) and waits for the coordinator's word."""

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
    """The worker is in the new generation, with its state: `digest` covers what must be equal on all workers."""

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
    """The script has come to its next loop over epochs. `generation` is the last one that the worker was ordered to
    form, None where it holds no state.
    """

    type: Literal["entered"] = "entered"
    generation: int | None


class ScriptEnded(Message):
    """The script has ended well, with no loop after the one that is over; the process waits to leave."""

    type: Literal["script_ended"] = "script_ended"
    generation: int | None


class Left(Message):
    type: Literal["left"] = "left"
    generation: int


class FirstStep(Message):
    """The first step of the generation is applied. `pause` is last old step to first new step less one step; None for a
    joiner.

    `phases` say where it went, one after another; their sum is the pause, but for the step that is taken off
    `first_step`.
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
    """The state at `position` could not be written; training goes on, and the commit before stands."""

    type: Literal["commit_failed"] = "commit_failed"
    generation: int
    position: Position
    reason: str


class CommitUnreadable(Message):
    """The commit or safe state that this worker was to load, as the source of the generation being formed, is gone or
    damaged for good.
    """

    type: Literal["commit_unreadable"] = "commit_unreadable"
    generation: int
    name: str
    reason: str


class ScriptFailed(Message):
    """The script raised; the process is about to end. `error`, its kind and words, tells two failures apart."""

    type: Literal["script_failed"] = "script_failed"
    generation: int
    position: Position
    error: str = Field(max_length=2000)
    traceback: str = Field(max_length=20_000)
    past_help: bool = Field(
        False, description="whether another try would lead to the same, or would hide what is wrong"
    )


class Progress(Message):
    """Proof of life between boundaries; at most once a second."""

    type: Literal["progress"] = "progress"
    generation: int
    position: Position
    samples_per_second: float
    own_seconds: float | None = Field(
        None, ge=0, description="of one step, without waiting for the others; None: not measured yet"
    )


class Whereabouts(Message):
    """Answer to where: whether the worker is inside a step, and waits for its sums; else it is in its script.
    `position` is after the last step it applied.
    """

    type: Literal["whereabouts"] = "whereabouts"
    generation: int
    waits: bool
    position: Position


class StepStatus(Message):
    """Answer to an abort: where the worker is in its step. `position` is after the last step it applied, `answered`
    counts the gradients of the step it waits for. `out` of a step it can leave at any time; `held` or `failed` it waits
    for the verdict only, with the sums, or without them and none to come. Who waits says so once the servers have all
    that it pushed itself: the keys of these numbers, which others that have not pushed them fill in so many `windows`.
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
    """The order to push zeros of this `number` is carried out: what was filled has reached the servers, what was owed
    is answered. `rounds`: how often something was pushed once more.
    """

    type: Literal["pumped"] = "pumped"
    generation: int
    number: int = 0
    rounds: int
    seconds: float


class Broken(Message):
    """This worker's sums are lost, by which it knows before anybody tells it that another worker is gone."""

    type: Literal["broken"] = "broken"
    generation: int
    reason: str = Field(max_length=2000)


# ---- to a worker process


class Proceed(Message):
    """Step on from `position`; of another position it is an old word that was said twice. `commit`: first copy the
    state at this boundary, then write it in the background and say committed. `keep`: the commits that the job may go
    back to, which stay when older ones are deleted; None: not said, and the newest stay.
    """

    type: Literal["proceed"] = "proceed"
    generation: int
    position: Position
    commit: bool = False
    keep: tuple[str, ...] | None = None


class Source(Message):
    """A member that has the state, or gets it earlier in the same chain, and hands it on."""

    instance_id: str
    host: str
    port: int = Field(ge=1, le=65535)


class LoopOver(Message):
    """The loop over epochs that the script is in, or waits to begin, is over for all: it goes on to its next one,
    number `loop`, which begins at `position`. `holds`: the worker's memory has the state that it begins with. `writes`:
    what the script writes for all meanwhile, this one writes.
    """

    type: Literal["loop_over"] = "loop_over"
    generation: int
    loop: int = Field(ge=1)
    position: Position
    holds: bool
    writes: bool = False


class Form(Message):
    """Prepare to join generation `generation` as number `number` of `workers`: say prepared, wait to go, join, say
    formed, wait for proceed.

    Until the word to go comes, another order to form may come instead: a member was lost, this generation is void.

    The state comes from `source` (an instance id): itself hands over from memory, or first loads `commit`, or the
    `safe` state of this name, as everybody does who has that one. Whoever lacks the state of `position` has `sources`:
    it fetches from the first that answers, with `transfer_token`, and hands on what it has.
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
        """Whether this worker lacks the state."""
        return bool(self.sources)

    @field_serializer("transfer_token", when_used="json")
    def _in_the_clear(self, token: SecretStr) -> str:
        return token.get_secret_value()


class Go(Message):
    """All members are prepared: join the generation. From here on nobody can be called back."""

    type: Literal["go"] = "go"
    generation: int


class Leave(Message):
    """Drop the store and exit with code 0: at a boundary after an admitted change, or when the job is over. At the
    job's end a worker of another generation than this has not come to the job's result, and must not keep its own.
    """

    type: Literal["leave"] = "leave"
    generation: int
    reason: str
    finished: bool = Field(False, description="whether the job has come to its end, or to where its script stopped it")
    writes: bool = Field(False, description="whether this worker's script writes what is for all; one of them does")


class Where(Message):
    """Nobody has made progress for a while: say where you are. It changes nothing."""

    type: Literal["where"] = "where"
    generation: int


class Abort(Message):
    """A member of the generation is lost: begin no step any more, issue the present one whole, say where you are. May
    be asked again.
    """

    type: Literal["abort"] = "abort"
    generation: int


class Pump(Message):
    """Push zeros for the gradients of the exchange in which a worker was lost: those of the numbers `keys` (none: those
    that this worker waits for) in this `window` of as many as all say; None: all of them.

    `fills`: this worker has not come to the exchange, and pushes one for each in its own place, until the servers have
    them. Else it pushes what the lost ones owe, `count` at most, for its share of the keys, until they are answered.
    `workers`: of the generation, the lost ones too.
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
    """Who is inside a step that leads to `position` or before it applies it, later steps are void. The order to form
    comes next.
    """

    type: Literal["verdict"] = "verdict"
    generation: int
    position: Position
    exchanges: int = Field(0, ge=0, description="that ended on all survivors; 0 also where it is not known any more")
