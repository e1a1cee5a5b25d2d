"""The success marker on the shared volume: `prepare_data_success_<private-ip>`.

Addresses are used again by later instances, so the name proves nothing: the marker says whose it is. Pure; the file is
read and written by `steps.prepare`.

An empty one is what a person makes by hand (`touch`). It says nothing, so it counts only where it can be of no earlier
life: made since this instance was launched, when nobody else had its address. The node then writes down whose it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pydantic import BaseModel, ConfigDict, ValidationError


class Marker(BaseModel):
    """One JSON line. `script_sha256` is None where there was nothing to prepare. `by_hand`: a person says so, nothing
    ran.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    instance_id: str
    attempt: int
    script_sha256: str | None
    exit_code: int
    at: float
    by_hand: bool = False


@dataclass(frozen=True)
class Found:
    """What is in the marker's place. `made_at`: None for what is no regular file, which is never a person's word."""

    text: str
    made_at: float | None


class MarkerState(Enum):
    COUNTS = "this instance has prepared with this script"
    MARKED = "a person has marked this instance as prepared with this script"
    ABSENT = "there is no marker"
    BY_HAND = "a person made an empty marker since the instance was launched"
    STALE = "the empty marker is older than this launch of the instance"
    UNDATED = "when the instance was launched is not known, so an empty marker says nothing: use mark-prepared"
    UNREADABLE = "the marker is not one of ours"
    OTHER_INSTANCE = "the marker was left by another instance that had this address"
    OTHER_SCRIPT = "the script has changed since"
    FAILED = "the marker tells of a failure"

    @property
    def spares(self) -> bool:
        """Whether there is nothing more to do about it."""
        return self in (MarkerState.COUNTS, MarkerState.MARKED)


def judge(
    found: Found | None, instance_id: str, script_sha256: str | None, launched_at: float | None = None
) -> MarkerState:
    """Whether the marker spares this node the preparation."""
    if found is None:
        return MarkerState.ABSENT
    if not found.text and found.made_at is not None:
        return _of_nobody(found.made_at, launched_at)
    try:
        marker = Marker.model_validate_json(found.text)
    except ValidationError:
        return MarkerState.UNREADABLE
    if marker.instance_id != instance_id:
        return MarkerState.OTHER_INSTANCE
    if marker.script_sha256 != script_sha256:
        return MarkerState.OTHER_SCRIPT
    if marker.exit_code:
        return MarkerState.FAILED
    return MarkerState.MARKED if marker.by_hand else MarkerState.COUNTS


def _of_nobody(made_at: float, launched_at: float | None) -> MarkerState:
    if launched_at is None:
        return MarkerState.UNDATED
    return MarkerState.BY_HAND if made_at >= launched_at else MarkerState.STALE
