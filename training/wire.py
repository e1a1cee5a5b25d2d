"""Who may say which message of the control channel, and how a text becomes one."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, TypeAdapter

from training.protocol import (
    Abort,
    Challenge,
    CheckIn,
    CommitFailed,
    Committed,
    CommitUnreadable,
    CoolDown,
    FirstStep,
    Form,
    Formed,
    Go,
    GroupFailed,
    GroupReady,
    Leave,
    Left,
    Listed,
    NodeHello,
    NodeNotice,
    Prepared,
    Proceed,
    Progress,
    Pump,
    Pumped,
    Refused,
    RestartWorker,
    Retire,
    StartGroup,
    StepStatus,
    StopGroup,
    Verdict,
    Welcome,
    WorkerExited,
    WorkerHello,
    WorkerStarted,
)

FromNode = NodeHello | GroupReady | GroupFailed | WorkerStarted | WorkerExited | NodeNotice
ToNode = Challenge | Welcome | Listed | StartGroup | StopGroup | RestartWorker | CoolDown | Retire | Refused
WorkerWord = Prepared | CheckIn | Formed | Left | FirstStep | Committed | CommitFailed | CommitUnreadable | Progress | StepStatus | Pumped
FromWorker = WorkerHello | WorkerWord
ToWorker = Challenge | Proceed | Form | Go | Leave | Abort | Pump | Verdict | Refused
ToCoordinator = FromNode | FromWorker
FromCoordinator = ToNode | ToWorker

_to_coordinator: TypeAdapter[ToCoordinator] = TypeAdapter(Annotated[ToCoordinator, Field(discriminator="type")])
_from_coordinator: TypeAdapter[FromCoordinator] = TypeAdapter(Annotated[FromCoordinator, Field(discriminator="type")])


def parse_to_coordinator(text: str | bytes) -> ToCoordinator:
    """Raises pydantic.ValidationError for anything that is not exactly one known message."""
    return _to_coordinator.validate_json(text)


def parse_from_coordinator(text: str | bytes) -> FromCoordinator:
    """Raises pydantic.ValidationError for anything that is not exactly one known message."""
    return _from_coordinator.validate_json(text)
