"""The success marker on the shared volume: `prepare_data_success_<private-ip>`. Pure; `steps.prepare` reads and writes
it.

Later instances reuse addresses, so the file name proves nothing: the content says which instance wrote it.

An empty marker is made by a person with `touch`. It names no instance, so it counts only if it is newer than the launch
of this instance: before, another instance may have had its address. The node then replaces it with a full marker.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pydantic import BaseModel, ConfigDict, ValidationError


class Marker(BaseModel):
    """Content of a marker file, one JSON line.

    `script_sha256` is None if there was nothing to prepare. `by_hand`: a person marked the node, no script ran.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    instance_id: str
    attempt: int
    script_sha256: str | None
    exit_code: int
    at: float
    by_hand: bool = False


@dataclass(frozen=True)
class MarkerFile:
    """What is at the marker's path. `modified_at` is None for anything but a regular file, which no person made."""

    text: str
    modified_at: float | None


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
    FAILED = "the marker records a failure"

    @property
    def spares(self) -> bool:
        """Whether nothing is left to do about the marker."""
        return self in (MarkerState.COUNTS, MarkerState.MARKED)


def judge(
    file: MarkerFile | None, instance_id: str, script_sha256: str | None, launched_at: float | None = None
) -> MarkerState:
    """Decide whether the marker spares this node the preparation."""
    if file is None:
        return MarkerState.ABSENT
    if not file.text and file.modified_at is not None:
        return _judge_empty(file.modified_at, launched_at)
    try:
        marker = Marker.model_validate_json(file.text)
    except ValidationError:
        return MarkerState.UNREADABLE
    if marker.instance_id != instance_id:
        return MarkerState.OTHER_INSTANCE
    if marker.script_sha256 != script_sha256:
        return MarkerState.OTHER_SCRIPT
    if marker.exit_code:
        return MarkerState.FAILED
    return MarkerState.MARKED if marker.by_hand else MarkerState.COUNTS


def _judge_empty(modified_at: float, launched_at: float | None) -> MarkerState:
    if launched_at is None:
        return MarkerState.UNDATED
    return MarkerState.BY_HAND if modified_at >= launched_at else MarkerState.STALE
