"""What the coordinator's state machine asks to be done."""

from __future__ import annotations

from dataclasses import dataclass

from dyntrain.training.events import Event
from dyntrain.training.journal import Entry
from dyntrain.training.protocol.wire import ToNode as NodeMessage
from dyntrain.training.protocol.wire import ToWorker as WorkerMessage


@dataclass(frozen=True)
class ToNode:
    instance_id: str
    message: NodeMessage


@dataclass(frozen=True)
class ToWorker:
    instance_id: str
    message: WorkerMessage


@dataclass(frozen=True)
class DropWorker:
    """Close the connection of the worker's process `pid`; what still arrives on it is void."""

    instance_id: str
    pid: int
    reason: str


@dataclass(frozen=True)
class Journal:
    """A decision that must survive the coordinator: on disk before any later order is carried out."""

    entry: Entry


@dataclass(frozen=True)
class Announce:
    """Something for people and for the events file."""

    event: Event


@dataclass(frozen=True)
class Over:
    """The job is over, nothing more will be ordered."""

    outcome: str


Order = ToNode | ToWorker | DropWorker | Journal | Announce | Over
