"""Messages between a node's supervisor and the coordinator; `messages` has what all messages have in common."""

from __future__ import annotations

from typing import Literal

from dyntrain.training.protocol.messages import Finite, Hello, Message
from pydantic import Field


class Launch(Message):
    """What a person launched on a cluster that waits for it: an argv (no shell reads it), directory and extra
    environment.

    `request` identifies a repeated launch.
    """

    request: str = Field(max_length=100)
    command: tuple[str, ...] = Field(min_length=1)
    directory: str = Field(max_length=4096)
    environment: dict[str, str] = Field({})
    dt_scripts: bool = False


# ---- from a node's supervisor


class NodeHello(Hello):
    """Signal that a node is prepared, sent on every (re)connection, so that a restarted coordinator learns of it."""

    type: Literal["node_hello"] = "node_hello"
    attempt: int = Field(ge=1)
    base: bool
    worker_pid: int | None = None
    life: str = Field("", max_length=100, description="of the supervisor: another process says another one")


class GroupReady(Message):
    """A node has blank ps-lite processes and a free port for a scheduler; sent again after each use.

    `base`: it is a base node, perhaps only since its hello.
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
    """A worker process runs on the node. If it does not connect in time, only the coordinator can give it up. `spare`:
    it was a spare before.
    """

    type: Literal["worker_started"] = "worker_started"
    pid: int
    spare: bool = False


REFUSED = 78  # exit code of a worker whose script the job refuses before it joins: EX_CONFIG of sysexits.h
FACE_WANTED = 79  # exit code of a script that needs --dt-scripts; above those of sysexits.h


class WorkerExited(Message):
    """A worker process has ended. `code` 0: it left, or its script came to its end."""

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
    """A person on this node launches a command on the cluster."""

    type: Literal["launch_request"] = "launch_request"
    launch: Launch


class EndRequest(Message):
    """A person on this node ends a launch."""

    type: Literal["end_request"] = "end_request"
    request: str = Field(max_length=100)


# ---- to a node's supervisor


class Welcome(Message):
    """Answer to a hello. `launch`: what to train, if the nodes' configuration has no command; None: nothing yet."""

    type: Literal["welcome"] = "welcome"
    job: str
    launch: Launch | None = None


class Launched(Message):
    """A launch is in force; sent to every node."""

    type: Literal["launched"] = "launched"
    launch: Launch


class LaunchAnswer(Message):
    """Answer to a request. `refused`: why, "" if accepted; `passing`: it may be accepted in a moment."""

    type: Literal["launch_answer"] = "launch_answer"
    request: str
    job: str
    refused: str = ""
    passing: bool = False


class Listed(Message):
    """Whether the controller's target lists the node, which acknowledges its report; sent after Welcome and at each
    change.
    """

    type: Literal["listed"] = "listed"
    listed: bool


class Workers(Message):
    """Known addresses of the target's nodes, the coordinator's own last; sent after each welcome and at each change.

    They are for people's commands that loop over the nodes.
    """

    type: Literal["workers"] = "workers"
    addresses: tuple[str, ...]


class PsProcess(Message):
    """Role and environment of a ps-lite process."""

    role: Literal["scheduler", "server", "rendezvous"]
    environment: dict[str, str]


class StartGroup(Message):
    """Start the ps-lite processes of a generation."""

    type: Literal["start_group"] = "start_group"
    generation: int
    processes: tuple[PsProcess, ...]


class StopGroup(Message):
    """Kill the ps-lite processes of this and of earlier generations."""

    type: Literal["stop_group"] = "stop_group"
    generation: int


class RestartWorker(Message):
    """Kill the worker process `pid` if it still runs, and start another.

    If it is not the present worker's pid, do nothing. None: start one if the last one left.
    """

    type: Literal["restart_worker"] = "restart_worker"
    pid: int | None
    reason: str


class CoolDown(Message):
    """The ended worker `pid` is not restarted for so many seconds: it failed too often. Repeated after each welcome.

    `given_up`: the job does not wait for the node either, which the controller should know.
    """

    type: Literal["cool_down"] = "cool_down"
    pid: int
    seconds: Finite
    given_up: bool = False


class Retire(Message):
    """The node has left the job: stop the worker and all else, and exit."""

    type: Literal["retire"] = "retire"
    reason: str
