"""Reads and writes stored files with one JSON object a line, each with the version of the file's format.

A record without the field `version` has version 1. Readers ignore unknown fields, so a field with a default may be
added without a new version; any other change needs a new version. Readers refuse records of an unknown version, as a
wrong guess about a newer coordinator's decision could lose samples.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError


class Unreadable(ValueError):
    """A file cannot be read by this version of dyntrain; the message names the file and says what to do."""


class Record(BaseModel):
    """Base class of all records in stored files."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", ser_json_inf_nan="constants", serialize_by_alias=True, validate_by_name=True
    )

    def line(self) -> bytes:
        """The record as a line of JSON."""
        return self.model_dump_json().encode() + b"\n"


R = TypeVar("R", bound=Record)


class Format(Generic[R]):
    """Parser of one kind of file; messages to users call the file `kind`."""

    def __init__(self, kind: str, version: int, adapter: TypeAdapter[R]) -> None:
        self._kind, self._version, self._adapter = kind, version, adapter

    def parse(self, line: dict[str, Any], where: object) -> R:
        """Parse a record from a line of the file `where`. Raises Unreadable."""
        version = line.get("version", 1)
        if version not in range(1, self._version + 1):
            raise Unreadable(
                f"{where}: written by a newer dyntrain, in version {version} of the {self._kind}; this one knows "
                f"version {self._version} at most. Use the release that wrote it, on all nodes"
            )
        try:
            return self._adapter.validate_python(line)
        except ValidationError as error:
            first_error = error.errors(include_url=False, include_context=False)[0]
            field_path = ".".join(map(str, first_error["loc"])) or "the record"
            raise Unreadable(
                f"{where}: a line does not follow the {self._kind}: {field_path}: {first_error['msg']}; something "
                "else than dyntrain has written into the file"
            ) from error
