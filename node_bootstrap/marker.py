"""The success marker on the shared volume: `prepare_data_success_<private-ip>`.

Addresses are used again by later instances, so the name proves nothing: the marker says whose it is. Pure; the file is `marker_file`'s.
"""

from __future__ import annotations

from enum import Enum

from pydantic import BaseModel, ConfigDict, ValidationError


class Marker(BaseModel):
    """One JSON line. `script_sha256` is None where there was nothing to prepare."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    instance_id: str
    attempt: int
    script_sha256: str | None
    exit_code: int
    at: float


class Verdict(Enum):
    COUNTS = "this instance has prepared with this script"
    ABSENT = "there is no marker"
    UNREADABLE = "the marker is not one of ours"
    OTHER_INSTANCE = "the marker was left by another instance that had this address"
    OTHER_SCRIPT = "the script has changed since"
    FAILED = "the marker tells of a failure"


def judge(text: str | None, instance_id: str, script_sha256: str | None) -> Verdict:
    """Whether the marker spares this node the preparation."""
    if text is None:
        return Verdict.ABSENT
    try:
        marker = Marker.model_validate_json(text)
    except ValidationError:
        return Verdict.UNREADABLE
    if marker.instance_id != instance_id:
        return Verdict.OTHER_INSTANCE
    if marker.script_sha256 != script_sha256:
        return Verdict.OTHER_SCRIPT
    return Verdict.COUNTS if marker.exit_code == 0 else Verdict.FAILED
