"""The orders that the coordinator's state machine returns for the coordinator to carry out."""

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
    """Order to close the connection of the worker's process `pid`; messages that still arrive there are ignored."""

    instance_id: str
    pid: int  # of the worker process
    reason: str  # why the connection is closed


@dataclass(frozen=True)
class Journal:
    """Order to write a decision, which must survive the coordinator, to disk before any later order is carried out."""

    entry: Entry  # the decision, as a line of the journal


@dataclass(frozen=True)
class Announce:
    """Order to publish an event in the log and in the events file."""

    event: Event


@dataclass(frozen=True)
class StopCoordinator:
    """Order the coordinator to stop, as the job has ended; no more orders follow."""

    outcome: str  # "finished" or "failed"


Order = ToNode | ToWorker | DropWorker | Journal | Announce | StopCoordinator
