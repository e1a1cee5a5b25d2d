"""Computes the time limit for a generation's members to prepare, and finds the members that are too late. Pure.

The time limit to prepare grows with the size of the state that is transferred. A member that exceeds the time limit is
left out of the generation. As no member enters the group before all are prepared, the prepared members lose only the
time of their wait.
"""

from __future__ import annotations

from collections.abc import Collection

from dyntrain.training.protocol.clocks import LEAST_SPEED, Clocks
from dyntrain.training.session.job.round import Round


def preparation_limit(current_round: Round, instance: str, clocks: Clocks) -> float:
    """Return how many seconds a member may take from the order to form until it is prepared.

    At an epoch's end, a member that stays may still run the script's own lines, such as a validation, so the limit of a
    boundary applies to this member.
    """
    state_bytes = max((fetch.size for fetch in current_round.fetching.values()), default=0)
    at_epochs_end = current_round.generation is not None and not current_round.generation.position.offset
    is_busy = at_epochs_end and instance in current_round.holders - current_round.waits
    return (clocks.boundary_limit if is_busy else clocks.formation_limit) + state_bytes / LEAST_SPEED


def find_late_members(
    current_round: Round, members: Collection[str], clocks: Clocks, waited_seconds: float
) -> list[str]:
    """Return the members that are not prepared in time, after `waited_seconds` of waiting.

    A member whose source of the state is late itself is not included.
    """
    missing_members = sorted(set(members) - current_round.prepared)
    late_members = [
        instance for instance in missing_members if waited_seconds > preparation_limit(current_round, instance, clocks)
    ]
    return [instance for instance in late_members if _source_of(current_round, instance) not in missing_members]


def _source_of(current_round: Round, instance: str) -> str | None:
    form_order = current_round.forms.get(instance)
    return form_order.sources[0].instance_id if form_order and form_order.sources else None
