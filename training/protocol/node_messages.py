"""Messages between a node's supervisor and the coordinator; the base classes are in `messages`."""

from __future__ import annotations

from typing import Literal

from dyntrain.training.protocol.messages import FiniteFloat, Hello, Message
from pydantic import Field


class Launch(Message):
    """The command that a user launches on a cluster which waits for a launch."""

    request: str = Field(max_length=100)  # id of the launch, the same when it is repeated
    command: tuple[str, ...] = Field(min_length=1)  # program and arguments, run without a shell
    directory: str = Field(max_length=4096)  # in which the command runs
    environment: dict[str, str] = Field({})  # extra environment variables
    dt_scripts: bool = False  # whether scripts of AWS Dynamic Training run unchanged


# ---- from a node's supervisor


class NodeHello(Hello):
    """First message of a prepared node, sent on each new connection, so that a restarted coordinator knows the node."""

    type: Literal["node_hello"] = "node_hello"
    attempt: int = Field(ge=1)  # number of the bootstrap's run on this node
    base: bool  # whether the node is a base node
    worker_pid: int | None = None  # of the node's worker, if it runs
    life: str = Field("", max_length=100, description="id of the supervisor's process")


class GroupReady(Message):
    """A node has unused ps-lite processes (without a role yet) and a free port for a scheduler.

    The node sends this message again after each use of its ps-lite processes. `base` says whether the node is a base
    node now; a node may become a base node after its hello.
    """

    type: Literal["group_ready"] = "group_ready"
    scheduler_port: int = Field(ge=1, le=65535)  # free port for a scheduler
    blanks: int = Field(ge=0)  # number of ps-lite processes without a role
    base: bool = True  # whether the node is a base node now


class GroupFailed(Message):
    """A ps-lite process of the given generation died, or could not be started."""

    type: Literal["group_failed"] = "group_failed"
    generation: int  # number of the generation that uses the process
    reason: str  # why the process failed


class WorkerStarted(Message):
    """A worker process was started on the node that sends this message.

    The process must connect to the coordinator within a time limit (`Clocks.start_limit`).
    """

    type: Literal["worker_started"] = "worker_started"
    pid: int  # of the worker process
    spare: bool = False  # whether the process was a warm spare, started in advance


REFUSED = 78  # exit code of a worker whose script the job refuses before it joins: EX_CONFIG of sysexits.h
FACE_WANTED = 79  # exit code of a script that needs --dt-scripts; not a code of sysexits.h


class WorkerExited(Message):
    """A worker process has ended.

    The exit code 0 in `code` means that the worker left the job, or that its script ended.
    """

    type: Literal["worker_exited"] = "worker_exited"
    pid: int  # of the worker process
    code: int  # exit code
    reason: str  # how the process ended


class NodeNotice(Message):
    """AWS will interrupt the node's machine at `deadline`, for example because AWS reclaims the Spot instance."""

    type: Literal["node_notice"] = "node_notice"
    kind: str  # kind of the interruption
    deadline: FiniteFloat  # in seconds since 1970


class LaunchRequest(Message):
    """A user on this node asks to launch a command on the cluster."""

    type: Literal["launch_request"] = "launch_request"
    launch: Launch  # the launch to accept


class EndRequest(Message):
    """A user on this node asks to stop the launch with the id `request`."""

    type: Literal["end_request"] = "end_request"
    request: str = Field(max_length=100)  # id of the launch


# ---- to a node's supervisor


class Welcome(Message):
    """The coordinator's answer to a node's hello.

    `launch` is the command that the node must run, if the nodes' configuration contains no command.
    """

    type: Literal["welcome"] = "welcome"
    job: str  # name of the cluster's job
    launch: Launch | None = None  # the active launch, if any


class Launched(Message):
    """A user's launch was accepted, and every node must run the launch's command."""

    type: Literal["launched"] = "launched"
    launch: Launch  # the accepted launch


class LaunchAnswer(Message):
    """Answer to a request to launch a command, or to stop a launch."""

    type: Literal["launch_answer"] = "launch_answer"
    request: str  # id of the answered request
    job: str  # name of the launched job
    refused: str = ""  # reason of a refusal
    passing: bool = False  # whether the refused request may soon be accepted


class Listed(Message):
    """Whether the controller's target lists the node, which shows that the controller has received the node's report.

    This message is sent after each Welcome and after each change of `listed`.
    """

    type: Literal["listed"] = "listed"
    listed: bool  # whether the target lists the node


class Workers(Message):
    """The known addresses of the nodes that the target lists, with the coordinator's node last.

    This message is sent after each Welcome and after each change of the addresses. Users' scripts that loop over the
    nodes need the addresses.
    """

    type: Literal["workers"] = "workers"
    addresses: tuple[str, ...]  # the coordinator's node is last


class PsProcess(Message):
    """Role and environment variables of a ps-lite process that is to be started."""

    role: Literal["scheduler", "server", "rendezvous"]  # what the process does
    environment: dict[str, str]  # variables of the process


class StartGroup(Message):
    """Order to start the ps-lite processes of a generation."""

    type: Literal["start_group"] = "start_group"
    generation: int  # number of the generation to form
    processes: tuple[PsProcess, ...]  # to start on this node


class StopGroup(Message):
    """Order to kill the ps-lite processes of the given generation and of earlier generations."""

    type: Literal["stop_group"] = "stop_group"
    generation: int  # number of the last generation to stop


class RestartWorker(Message):
    """Order to kill the worker process `pid` if it still runs, and to start another worker.

    If `pid` is not the present worker's, the node does nothing. With `pid` None, the node starts a worker, but only
    if its last worker has left the job.
    """

    type: Literal["restart_worker"] = "restart_worker"
    pid: int | None  # of the worker to replace; None: it has left
    reason: str  # why the worker is replaced


class CoolDown(Message):
    """Order not to restart the ended worker `pid` for `seconds`, as the node's worker failed too often.

    The coordinator repeats this order after each Welcome. `given_up` says that the job does not wait for the node any
    more, which the node reports to the controller.
    """

    type: Literal["cool_down"] = "cool_down"
    pid: int  # of the ended worker
    seconds: FiniteFloat  # duration of the pause
    given_up: bool = False  # whether the job does not wait for the node


class Retire(Message):
    """Order to stop the worker and all other processes, and to exit, as the node has left the job."""

    type: Literal["retire"] = "retire"
    reason: str  # why the node must exit
