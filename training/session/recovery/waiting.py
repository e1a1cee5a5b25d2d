"""How long the members of a generation wait for one of them to prepare, and whose fault it is. Pure.

A large state takes its time, and the bound follows from its size. Whoever is too slow all the same stays out: nobody
has begun to form, so the others lose nothing but the wait.
"""

from __future__ import annotations

from collections.abc import Collection

from dyntrain.training.protocol.clocks import LEAST_SPEED, Clocks
from dyntrain.training.session.job.round import Round


def to_prepare(present: Round, instance: str, clocks: Clocks) -> float:
    """Seconds from the order to "prepared". A survivor at an epoch's end may be in the script's own lines there: a
    validation takes as long as at any boundary.
    """
    size = max((fetch.size for fetch in present.fetching.values()), default=0)
    at_epochs_end = present.generation is not None and not present.generation.position.offset
    busy = at_epochs_end and instance in present.holders - present.waits
    return (clocks.boundary if busy else clocks.formation) + size / LEAST_SPEED


def too_late(present: Round, members: Collection[str], clocks: Clocks, waited: float) -> list[str]:
    """Of those who are not prepared after `waited` seconds, the ones that do not just wait for another: who is behind a
    slow one in its chain is slow for that alone.
    """
    missing = sorted(set(members) - present.prepared)
    late = [instance for instance in missing if waited > to_prepare(present, instance, clocks)]
    return [instance for instance in late if _before(present, instance) not in missing]


def _before(present: Round, instance: str) -> str | None:
    order = present.forms.get(instance)
    return order.sources[0].instance_id if order and order.sources else None
