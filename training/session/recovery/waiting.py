"""How long the members of a generation wait for one of them to prepare, and whose fault it is. Pure.

A large state takes its time, and the bound follows from its size. Whoever is too slow all the same stays out: nobody
has begun to form, so the others lose nothing but the wait.
"""

from __future__ import annotations

from collections.abc import Collection

from dyntrain.training.protocol.clocks import LEAST_SPEED
from dyntrain.training.session.job.round import Round


def to_prepare(present: Round, formation: float) -> float:
    """Seconds from the order to the last "prepared"; `formation` is the bound without a large state."""
    size = max((said.size for said in present.fetching.values()), default=0)
    return formation + size / LEAST_SPEED


def too_late(present: Round, members: Collection[str]) -> list[str]:
    """Of those who are not prepared, the ones that do not just wait for another: who is behind a slow one in its chain
    is slow for that alone.
    """
    late = sorted(set(members) - present.prepared)
    return [instance for instance in late if _before(present, instance) not in late]


def _before(present: Round, instance: str) -> str | None:
    order = present.forms.get(instance)
    return order.sources[0].instance_id if order and order.sources else None
