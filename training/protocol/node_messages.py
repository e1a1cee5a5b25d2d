"""The messages between a node's supervisor and the coordinator. What holds for all messages is said in `messages`."""

from __future__ import annotations

from typing import Literal

from dyntrain.training.protocol.messages import Finite, Hello, Message
from pydantic import Field


class Launch(Message):
    """What a person launched on a cluster that waits for that: an argv, never read by a shell, where it runs, and what
    its environment has besides. `request`: by which a repeated one is known.
    """

    request: str = Field(max_length=100)
    command: tuple[str, ...] = Field(min_length=1)
    directory: str = Field(max_length=4096)
    environment: dict[str, str] = Field({})
    dt_scripts: bool = False


# ---- from a node's supervisor


class NodeHello(Hello):
    """The signal that a node is prepared: sent on every (re)connection, so a coordinator that was down learns of it."""

    type: Literal["node_hello"] = "node_hello"
    attempt: int = Field(ge=1)
    base: bool
    worker_pid: int | None = None
    life: str = Field("", max_length=100, description="of the supervisor: another process says another one")


class GroupReady(Message):
    """A node holds blank ps-lite processes and a free port for a scheduler; sent again after each use. `base`: it is a
    base node, which it may have become after its hello.
    """

    type: Literal["group_ready"] = "group_ready"
    scheduler_port: int = Field(ge=1, le=65535)
    blanks: int = Field(ge=0)
    base: bool = True


class GroupFailed(Message):
    """A ps-lite process of the generation died, or could not be started."""

    type: Literal["group_failed"] = "group_failed"
    generation: int
    reason: str


class WorkerStarted(Message):
    """A worker process of the node runs now: until it connects, nobody but the coordinator bounds it. `spare`: it was
    promoted, not started.
    """

    type: Literal["worker_started"] = "worker_started"
    pid: int
    spare: bool = False


REFUSED = 78  # the exit code of a worker whose script the job refuses before it has joined: EX_CONFIG of sysexits.h
FACE_WANTED = 79  # likewise, of one that wants --dt-scripts; above what sysexits.h has


class WorkerExited(Message):
    """`code` 0: it left, or its script came to its end."""

    type: Literal["worker_exited"] = "worker_exited"
    pid: int
    code: int
    reason: str


class NodeNotice(Message):
    """The machine will be taken at `deadline` (Spot, maintenance)."""

    type: Literal["node_notice"] = "node_notice"
    kind: str
    deadline: Finite


class LaunchRequest(Message):
    """A person on this node wants the cluster to train that."""

    type: Literal["launch_request"] = "launch_request"
    launch: Launch


class EndRequest(Message):
    """A person on this node wants that launch to end."""

    type: Literal["end_request"] = "end_request"
    request: str = Field(max_length=100)


# ---- to a node's supervisor


class Welcome(Message):
    """`launch`: what to train, where the nodes' configuration does not say it; None: nothing yet."""

    type: Literal["welcome"] = "welcome"
    job: str
    launch: Launch | None = None


class Launched(Message):
    """Said to every node as soon as a launch is in force."""

    type: Literal["launched"] = "launched"
    launch: Launch


class LaunchAnswer(Message):
    """`refused`: why not; "" where the request is carried out. `passing`: it may be carried out in a moment."""

    type: Literal["launch_answer"] = "launch_answer"
    request: str
    job: str
    refused: str = ""
    passing: bool = False


class Listed(Message):
    """Whether the controller's target holds the node: the acknowledgement of its report. Sent after the welcome and at
    each change.
    """

    type: Literal["listed"] = "listed"
    listed: bool


class Workers(Message):
    """The addresses of the target's nodes as far as they are known, the coordinator's own last. Said after each welcome
    and at each change: people's commands loop over them.
    """

    type: Literal["workers"] = "workers"
    addresses: tuple[str, ...]


class PsProcess(Message):
    role: Literal["scheduler", "server", "rendezvous"]
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
    """Kill the worker process `pid` if it still runs, and start another. Another pid than the present worker's: nothing
    to do. None: start one if the last one left.
    """

    type: Literal["restart_worker"] = "restart_worker"
    pid: int | None
    reason: str


class CoolDown(Message):
    """The worker `pid` that ended is not started again before so many seconds have passed: it failed too often.
    `given_up`: nor is the node worth waiting for, which the controller should hear. Said again after each welcome.
    """

    type: Literal["cool_down"] = "cool_down"
    pid: int
    seconds: Finite
    given_up: bool = False


class Retire(Message):
    """The node has left the job: stop the worker and all else, and exit."""

    type: Literal["retire"] = "retire"
    reason: str
