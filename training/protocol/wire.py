"""The messages that each side of the control channel may send, and functions that parse messages."""

from __future__ import annotations

from typing import Annotated

from dyntrain.training.protocol.messages import (
    Abort,
    Broken,
    Challenge,
    CheckIn,
    CommitFailed,
    Committed,
    CommitUnreadable,
    Entered,
    Fetching,
    FirstStep,
    Form,
    Formed,
    Go,
    Leave,
    Left,
    LoopOver,
    Prepared,
    Proceed,
    Progress,
    Pump,
    Pumped,
    Refused,
    ScriptEnded,
    ScriptFailed,
    StepStatus,
    StepVerdict,
    Where,
    Whereabouts,
    WorkerHello,
)
from dyntrain.training.protocol.node_messages import (
    CoolDown,
    EndRequest,
    GroupFailed,
    GroupReady,
    LaunchAnswer,
    Launched,
    LaunchRequest,
    Listed,
    NodeHello,
    NodeNotice,
    RestartWorker,
    Retire,
    StartGroup,
    StopGroup,
    Welcome,
    WorkerExited,
    Workers,
    WorkerStarted,
)
from pydantic import Field, TypeAdapter

FromNode = NodeHello | GroupReady | GroupFailed | WorkerStarted | WorkerExited | NodeNotice | LaunchRequest | EndRequest
ToNode = (
    Challenge
    | Welcome
    | Launched
    | LaunchAnswer
    | Listed
    | Workers
    | StartGroup
    | StopGroup
    | RestartWorker
    | CoolDown
    | Retire
    | Refused
)
WorkerReport = (
    Prepared
    | CheckIn
    | Formed
    | Left
    | Entered
    | ScriptEnded
    | FirstStep
    | Committed
    | CommitFailed
    | CommitUnreadable
    | Fetching
    | Progress
    | Whereabouts
    | ScriptFailed
    | StepStatus
    | Pumped
    | Broken
)
FromWorker = WorkerHello | WorkerReport
ToWorker = Challenge | Proceed | Form | Go | Leave | LoopOver | Where | Abort | Pump | StepVerdict | Refused
ToCoordinator = FromNode | FromWorker
FromCoordinator = ToNode | ToWorker

_to_coordinator: TypeAdapter[ToCoordinator] = TypeAdapter(Annotated[ToCoordinator, Field(discriminator="type")])
_from_coordinator: TypeAdapter[FromCoordinator] = TypeAdapter(Annotated[FromCoordinator, Field(discriminator="type")])


def parse_to_coordinator(text: str | bytes) -> ToCoordinator:
    """Parse a message. Raises pydantic.ValidationError if the text is not exactly one known message."""
    return _to_coordinator.validate_json(text)


def parse_from_coordinator(text: str | bytes) -> FromCoordinator:
    """Parse a message. Raises pydantic.ValidationError if the text is not exactly one known message."""
    return _from_coordinator.validate_json(text)
