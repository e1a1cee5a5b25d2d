"""Plans from which members the other members of a generation fetch the state. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def plan_chains(holders: Sequence[str], receivers: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the members from which each receiver may fetch the state, in order of preference.

    The members in `holders` have the state; the first holder is the generation's source. Behind each holder the
    receivers form a chain, in which each receiver passes the state on to the next receiver. A receiver whose
    predecessor is lost asks the predecessor's predecessor, and so on up to the chain's holder, and last the holders of
    other chains. No two members ever fetch the state from each other.
    """
    sources = {}
    for index, instance_id in enumerate(receivers):
        predecessors = [receivers[earlier_index] for earlier_index in range(index - len(holders), -1, -len(holders))]
        own_holder = holders[index % len(holders)]
        sources[instance_id] = (*predecessors, own_holder, *(holder for holder in holders if holder != own_holder))
    return sources
