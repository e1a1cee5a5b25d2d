"""What outlives the process that wrote it: JSON objects, one a line, each with the version of its format.

A record without a version is of version 1. Fields that a reader does not know are passed over, so a field may be added
with a default; whatever else changes gets a new version. A reader refuses versions that it does not know: to guess what
a newer coordinator decided could lose samples.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError


class Unreadable(ValueError):
    """What was written cannot be understood here: says where it is, and what to do."""


class Record(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", ser_json_inf_nan="constants", serialize_by_alias=True, validate_by_name=True
    )

    def line(self) -> bytes:
        return self.model_dump_json().encode() + b"\n"


R = TypeVar("R", bound=Record)


class Format(Generic[R]):
    """How the records of one kind of file are read; `what` names them for people."""

    def __init__(self, what: str, version: int, adapter: TypeAdapter[R]) -> None:
        self._what, self._version, self._adapter = what, version, adapter

    def parse(self, line: dict[str, Any], where: object) -> R:
        """Raises Unreadable; `where` is the file that the line is in."""
        version = line.get("version", 1)
        if version not in range(1, self._version + 1):
            raise Unreadable(
                f"{where}: written by a newer dyntrain, in version {version} of the {self._what}; this one knows "
                f"version {self._version} at most. Use the release that wrote it, on all nodes"
            )
        try:
            return self._adapter.validate_python(line)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_context=False)[0]
            place = ".".join(map(str, fault["loc"])) or "the record"
            raise Unreadable(
                f"{where}: a line does not follow the {self._what}: {place}: {fault['msg']}; something else than "
                "dyntrain has written into the file"
            ) from error
