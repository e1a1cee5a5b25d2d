"""The order in which members fetch the state from each other. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def plan_chains(holders: Sequence[str], lacking: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return for each of `lacking` the members from which it fetches the state, in order of preference.

    `holders` have the state; the first one is the generation's source. Behind each holder the members of `lacking` form
    a chain, in which each passes on the state. A member whose predecessor is lost asks the member before that one, up
    to the chain's holder, then the other holders. No two members ever fetch from each other.
    """
    sources = {}
    for number, instance in enumerate(lacking):
        predecessors = [lacking[earlier] for earlier in range(number - len(holders), -1, -len(holders))]
        own_holder = holders[number % len(holders)]
        sources[instance] = (*predecessors, own_holder, *(other for other in holders if other != own_holder))
    return sources
