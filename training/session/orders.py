"""The orders that the coordinator's state machine returns."""

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
    """Close the connection of the worker's process `pid`; messages that still arrive on the connection are ignored."""

    instance_id: str
    pid: int
    reason: str


@dataclass(frozen=True)
class Journal:
    """Write a decision that must survive the coordinator to disk, before any later order is carried out."""

    entry: Entry


@dataclass(frozen=True)
class Announce:
    """Publish an event for people and the events file."""

    event: Event


@dataclass(frozen=True)
class Over:
    """The job is over; no more orders follow."""

    outcome: str


Order = ToNode | ToWorker | DropWorker | Journal | Announce | Over
