"""Judges the success marker of prepare-data, the file `prepare_data_success_<private-ip>` on the shared volume. Pure.

A later instance may get the same private IP address, so the file name does not prove which instance was prepared. The
content of the marker file names the instance that wrote the marker.

To mark a node as prepared, a person can make an empty marker file with `touch`. An empty marker names no instance, so
it is valid only if it is newer than this instance's launch. An older empty marker may be meant for an earlier instance
with the same address. The node replaces a valid empty marker by a marker file with content.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pydantic import BaseModel, ConfigDict, ValidationError


class Marker(BaseModel):
    """Content of a marker file, one JSON line."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    instance_id: str
    attempt: int  # number of the run of the node's program
    script_sha256: str | None  # None: there was nothing to prepare
    exit_code: int  # exit code of the prepare-data script
    at: float  # when the marker was written
    by_hand: bool = False  # whether a person marked the node, so that no script ran


@dataclass(frozen=True)
class MarkerFile:
    """The file at the marker's path, whose content may be no valid marker."""

    text: str  # content of the file
    modified_at: float | None  # None for a link, a pipe or a socket, which do not count as a marker


class MarkerState(Enum):
    PREPARED = "this instance was prepared with this script"
    MARKED = "a person has marked this instance as prepared with this script"
    ABSENT = "there is no marker"
    BY_HAND = "a person made an empty marker since the instance was launched"
    STALE = "the empty marker is older than this launch of the instance"
    UNDATED = "the launch time of the instance is unknown, so an empty marker does not count: use mark-prepared"
    UNREADABLE = "the marker was not written by dyntrain"
    OTHER_INSTANCE = "the marker was left by another instance that had this address"
    OTHER_SCRIPT = "the script has changed since the marker was written"
    FAILED = "the marker records a failure"

    @property
    def is_complete(self) -> bool:
        """Whether the marker proves that the node is prepared."""
        return self in (MarkerState.PREPARED, MarkerState.MARKED)


def judge_marker(
    file: MarkerFile | None, instance_id: str, script_sha256: str | None, launched_at: float | None = None
) -> MarkerState:
    """Return the state of the marker: whether it proves that this node is prepared, or why not."""
    if file is None:
        return MarkerState.ABSENT
    if not file.text and file.modified_at is not None:
        return _judge_empty_marker(file.modified_at, launched_at)
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
    return MarkerState.MARKED if marker.by_hand else MarkerState.PREPARED


def _judge_empty_marker(modified_at: float, launched_at: float | None) -> MarkerState:
    if launched_at is None:
        return MarkerState.UNDATED
    return MarkerState.BY_HAND if modified_at >= launched_at else MarkerState.STALE
