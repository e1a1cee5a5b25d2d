"""Which value counts when an event and a read of a node disagree. Pure.

EC2 is eventually consistent. A read that began within the settling margin after an event may show the older state, and
does not override the event. But events may be late as well. If a status was announced after a read, and an earlier
event arrives only then, the read counts: the read showed the later state, or the next read will correct it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from dyntrain.controller.core.records.facts import InstanceState, NodeFacts, Phase

RUNNING: tuple[InstanceState, ...] = ("pending", "running")
_IN_GROUP: tuple[Phase, ...] = ("warm", "launching", "in_service")
_JOINED_STATUSES = ("ADD_QUEUED", "ADDED")
_LEFT_STATUSES = ("REMOVAL_QUEUED", "REMOVED")
Register = Literal["tags", "state", "group"]


def reads_that_count(facts: NodeFacts, settling: float, elastic_key: str) -> frozenset[Register]:
    """The registers in which the read counts, rather than the event. `elastic_key` is the key of the elastic tag."""
    return frozenset(_counting_reads(facts, settling, elastic_key))


def _counting_reads(facts: NodeFacts, settling: float, elastic_key: str) -> Iterator[Register]:
    tags, state, group = facts.tags_event, facts.state_event, facts.group_event
    if (read := facts.tags_read) is not None and (
        tags is None
        or _read_counts(facts, settling, (tags.at, read.started), (elastic_key in tags.tags, elastic_key in read.tags))
    ):
        yield "tags"
    if (status := facts.state_read) is not None and (
        state is None
        or _read_counts(facts, settling, (state.at, status.started), (state.state in RUNNING, status.state in RUNNING))
    ):
        yield "state"
    if (member := facts.group_read) is not None and (
        group is None
        or _read_counts(
            facts, settling, (group.at, member.started), (group.phase in _IN_GROUP, member.phase in _IN_GROUP)
        )
    ):
        yield "group"


def _read_counts(facts: NodeFacts, settling: float, times: tuple[float, float], node_stays: tuple[bool, bool]) -> bool:
    """Whether the read counts. `times` are those of the event and the read; `node_stays` says for each whether the node
    stays.
    """
    (event_at, started), (by_event, by_read) = times, node_stays
    if started > event_at + settling:
        return True
    status = facts.acks.status
    if status is None or by_event == by_read or not event_at < started < status.at:
        return False
    return status.value.partition(" ")[0] in (_JOINED_STATUSES if by_read else _LEFT_STATUSES)
