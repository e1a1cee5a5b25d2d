"""Read recorded events from files with one JSON value, a JSON list, or several JSON values (JSON lines).

Content that is no event becomes a record with a problem, and raises no error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.core.incoming.payloads import Time
from pydantic import TypeAdapter, ValidationError

_TIME_TYPE: TypeAdapter[float] = TypeAdapter(Time)
_BLANKS = re.compile(r"[ \t\r\n]*")


class Unreadable(GiveUp):  # raised for a path
    """Raised for a path that cannot be read."""


@dataclass(frozen=True)
class Record:  # in a file of recorded events
    """A record in a file: either an event, or the reason why the content is no event."""

    file: str  # name of the file
    event: Mapping[str, Any] | None  # the event as EventBridge sent it
    problem: str = ""  # the reason why the record is no event

    @property
    def time(self) -> float | None:
        """The time of the event, or None if the record contains no valid time."""
        try:
            return _TIME_TYPE.validate_python((self.event or {})["time"])
        except (KeyError, TypeError, ValueError, OverflowError, ValidationError):
            return None


def files_of(paths: Iterable[str]) -> list[Path]:
    """The files among `paths`, and all files below folders among `paths` except hidden files. Raises Unreadable."""
    found_files: list[Path] = []
    for path_text in paths:
        path = Path(path_text)
        try:
            if path.is_dir():
                found_files += sorted(
                    file for file in path.rglob("*") if file.is_file() and not _is_hidden(file.relative_to(path))
                )
            else:
                path.open("rb").close()
                found_files.append(path)
        except OSError as error:
            raise Unreadable(f"{path_text} cannot be read: {error.strerror or error}") from error
    return found_files


def text_of(file: Path) -> str:
    """The text of a UTF-8 file. Raises Unreadable for a file that cannot be read or is no UTF-8 text."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise Unreadable(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise Unreadable(f"{file} cannot be read: it is no text ({error.reason} at byte {error.start})") from error


def records_of(file: Path) -> Iterator[Record]:
    """The records in the file, each with an event or a problem. Raises Unreadable for a file that cannot be read."""
    file_name = str(file)
    try:
        file_bytes = file.read_bytes()
    except OSError as error:
        raise Unreadable(f"{file_name} cannot be read: {error.strerror or error}") from error
    try:
        file_text = file_bytes.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield Record(file_name, None, f"not JSON: {error.reason} at byte {error.start}")
        return
    json_values, json_problem = _parsed_values(file_text)
    if json_problem:
        json_values, json_problem = _concatenated_values(file_text) or (json_values, json_problem)
    if not json_problem:
        for value in json_values:
            yield from _records_in_value(file_name, value)
        return
    # not splitlines(): JSON strings may contain other line separators
    json_lines = [line for line in file_text.split("\n") if line.strip()]
    parsed_lines = [_parsed_values(json_line) for json_line in json_lines]
    if len(json_lines) < 2 or all(line_problem for _, line_problem in parsed_lines):
        yield Record(file_name, None, json_problem)
        return
    for line_number, (line_values, line_problem) in enumerate(parsed_lines, 1):
        if line_problem:
            yield Record(file_name, None, f"line {line_number}: {line_problem}")
        for value in line_values:
            yield from _records_in_value(file_name, value)


def _parsed_values(text: str) -> tuple[list[Any], str]:
    """The JSON values in the text, and "" or the reason why the text is not JSON. The elements of a JSON list are
    returned as separate values.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return [], f"not JSON: {' '.join(str(error).split())}" if text.strip() else "not JSON: the file is empty"
    return (value, "") if isinstance(value, list) else ([value], "")


def _concatenated_values(text: str) -> tuple[list[Any], str] | None:
    """The values of a text that consists of several JSON values in a row, as `jq` and `aws` print them. The result is
    None for a text that is not a series of JSON values.
    """
    decoder, json_values, position = json.JSONDecoder(), list[Any](), _position_after_blanks(text, 0)
    try:
        while position < len(text):
            value, end_position = decoder.raw_decode(text, position)
            json_values += value if isinstance(value, list) else [value]
            position = _position_after_blanks(text, end_position)
    except (ValueError, RecursionError):
        return None
    return (json_values, "") if json_values else None


def _position_after_blanks(text: str, start: int) -> int:
    blanks_match = _BLANKS.match(text, start)
    return blanks_match.end() if blanks_match is not None else start


def _records_in_value(name: str, value: Any) -> Iterator[Record]:
    """The records in one JSON value. Events are unpacked from SQS messages, from answers of `aws sqs receive-message`,
    and from the field `requestPayload` of Lambda's records for a failure destination.
    """
    if isinstance(value, dict) and isinstance(value.get("Messages"), list):
        for message in value["Messages"]:
            yield from _records_in_value(name, message)
        return
    message_body = value.get("Body", value.get("body")) if isinstance(value, dict) else None
    if isinstance(message_body, str) and "detail-type" not in value:
        json_values, json_problem = _parsed_values(message_body)
        for json_value in json_values:
            yield from _records_in_value(name, json_value)
        if json_problem:
            yield Record(name, None, f"the body of a message is {json_problem}")
        return
    if isinstance(value, dict) and "requestContext" in value and isinstance(value.get("requestPayload"), dict):
        yield from _records_in_value(name, value["requestPayload"])
        return
    yield _record_of_value(name, value)


def _record_of_value(name: str, value: Any) -> Record:
    if isinstance(value, dict) and "DDBStreamBatchInfo" in value:
        return Record(name, None, "no event: a failed batch of the table's stream; the next resync handles its changes")
    if not isinstance(value, dict):
        return Record(name, None, f"no event: a JSON {type(value).__name__}, not an object")
    detail_type = value.get("detail-type", value.get("detail_type"))  # AWS's documentation uses both spellings
    missing_keys = [
        key
        for key, field_value in (("source", value.get("source")), ("detail-type", detail_type))
        if not isinstance(field_value, str)
    ]
    if missing_keys:
        return Record(name, None, f"no event: {' and '.join(missing_keys)} missing")
    return Record(name, value)


def _is_hidden(path: Path) -> bool:
    return any(path_part.startswith(".") for path_part in path.parts)
