"""Decide which value is used if an event and a read (describe call) show different states of a node. Pure.

EC2 is eventually consistent, so a read may show an older state than an event. An event is used unless the read of the
same value began later than the settling margin after the event. An exception is an event that arrives late: if the
controller has already announced a status that followed from a read later than the event, the read is used. If the wrong
value was used, the next read corrects the node's view.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from dyntrain.controller.core.records.facts import InstanceState, NodeFacts, Phase

RUNNING: tuple[InstanceState, ...] = ("pending", "running")  # EC2 states in which an instance runs or starts
_IN_GROUP: tuple[Phase, ...] = ("warm", "launching", "in_service")  # phases of a member of an Auto Scaling group
_JOINED_STATUSES = ("ADD_QUEUED", "ADDED")  # of nodes that are joining or have joined
_LEFT_STATUSES = ("REMOVAL_QUEUED", "REMOVED")  # of nodes that are leaving or have left
Register = Literal["tags", "state", "group"]  # values that an event and a read may show differently


def preferred_reads(facts: NodeFacts, settling: float, elastic_key: str) -> frozenset[Register]:
    """The names of the values (tags, state, group) for which the read is used instead of the event. `elastic_key` is
    the key of the cluster's elastic tag.
    """
    return frozenset(_yield_preferred_reads(facts, settling, elastic_key))


def _yield_preferred_reads(facts: NodeFacts, settling: float, elastic_key: str) -> Iterator[Register]:
    tags_event, state_event, group_event = facts.tags_event, facts.state_event, facts.group_event
    if (tags_read := facts.tags_read) is not None and (
        tags_event is None
        or _prefers_read(
            facts,
            settling,
            (tags_event.at, tags_read.started),
            (elastic_key in tags_event.tags, elastic_key in tags_read.tags),
        )
    ):
        yield "tags"
    if (state_read := facts.state_read) is not None and (
        state_event is None
        or _prefers_read(
            facts,
            settling,
            (state_event.at, state_read.started),
            (state_event.state in RUNNING, state_read.state in RUNNING),
        )
    ):
        yield "state"
    if (group_read := facts.group_read) is not None and (
        group_event is None
        or _prefers_read(
            facts,
            settling,
            (group_event.at, group_read.started),
            (group_event.phase in _IN_GROUP, group_read.phase in _IN_GROUP),
        )
    ):
        yield "group"


def _prefers_read(facts: NodeFacts, settling: float, times: tuple[float, float], node_stays: tuple[bool, bool]) -> bool:
    """Whether the value from the describe call is used instead of the value from the event. `times` are the times of
    the event and of the read. `node_stays` says whether the node stays, first according to the event, then according to
    the read.
    """
    (event_at, read_started), (stays_by_event, stays_by_read) = times, node_stays
    if read_started > event_at + settling:
        return True
    status_ack = facts.acks.status
    if status_ack is None or stays_by_event == stays_by_read or not event_at < read_started < status_ack.at:
        return False
    return status_ack.value.partition(" ")[0] in (_JOINED_STATUSES if stays_by_read else _LEFT_STATUSES)
