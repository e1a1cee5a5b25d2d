"""The time limit for a generation's members to prepare, and the members that are too late. Pure.

The limit grows with the size of the state that is transferred. A member that is still too slow is left out. As no
member has begun to form, the others lose only this time.
"""

from __future__ import annotations

from collections.abc import Collection

from dyntrain.training.protocol.clocks import LEAST_SPEED, Clocks
from dyntrain.training.session.job.round import Round


def preparation_limit(present: Round, instance: str, clocks: Clocks) -> float:
    """Seconds allowed from the order to form until the member is prepared.

    A remaining member at an epoch's end may still run the script's own lines, such as a validation, so it has the time
    limit of a boundary.
    """
    size = max((fetch.size for fetch in present.fetching.values()), default=0)
    at_epochs_end = present.generation is not None and not present.generation.position.offset
    busy = at_epochs_end and instance in present.holders - present.waits
    return (clocks.boundary if busy else clocks.formation) + size / LEAST_SPEED


def too_late(present: Round, members: Collection[str], clocks: Clocks, waited: float) -> list[str]:
    """Return the members that are late after `waited` seconds, without those that wait for a late source."""
    missing = sorted(set(members) - present.prepared)
    late = [instance for instance in missing if waited > preparation_limit(present, instance, clocks)]
    return [instance for instance in late if _source_of(present, instance) not in missing]


def _source_of(present: Round, instance: str) -> str | None:
    order = present.forms.get(instance)
    return order.sources[0].instance_id if order and order.sources else None
