"""In which order members get the state from each other. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def plan_chains(holders: Sequence[str], lacking: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Whom each of the `lacking` asks for the state, in this order; `holders` have it, the generation's source first.

    They stand in one chain behind each holder, and hand on what they have. Whoever loses the one before it asks the one
    before that, up to the chain's holder, then the other holders. Nobody is ever asked by somebody it asks itself.
    """
    asks = {}
    for number, instance in enumerate(lacking):
        before = [lacking[earlier] for earlier in range(number - len(holders), -1, -len(holders))]
        own = holders[number % len(holders)]
        asks[instance] = (*before, own, *(other for other in holders if other != own))
    return asks
