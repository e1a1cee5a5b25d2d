"""The order in which members fetch the state from each other. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def plan_chains(holders: Sequence[str], lacking: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """For each of `lacking`, the members from whom it fetches the state, in order of preference.

    `holders` have the state, the generation's source first. Behind each holder the others form one chain, in which each
    passes on what it has received. A member whose predecessor is lost turns to the one before that, up to the chain's
    holder, then to the other holders. No two members ever fetch from each other.
    """
    asks = {}
    for number, instance in enumerate(lacking):
        before = [lacking[earlier] for earlier in range(number - len(holders), -1, -len(holders))]
        own = holders[number % len(holders)]
        asks[instance] = (*before, own, *(other for other in holders if other != own))
    return asks
