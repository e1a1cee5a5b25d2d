"""Read recorded events from files with one JSON value, a JSON list, or several JSON values (JSON lines).

Other content becomes a record with a problem and raises no error.
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

_TIME: TypeAdapter[float] = TypeAdapter(Time)
_BLANKS = re.compile(r"[ \t\r\n]*")


class Unreadable(GiveUp):
    """Raised for a path that cannot be read."""


@dataclass(frozen=True)
class Record:
    """A record of a file. `event` None: `problem` says why the record is no event."""

    file: str
    event: Mapping[str, Any] | None
    problem: str = ""

    @property
    def time(self) -> float | None:
        """The time in the event; None without a valid time."""
        try:
            return _TIME.validate_python((self.event or {})["time"])
        except (KeyError, TypeError, ValueError, OverflowError, ValidationError):
            return None


def files_of(paths: Iterable[str]) -> list[Path]:
    """The files among `paths`, and all files below folders among `paths`, without hidden files. Raises Unreadable."""
    files: list[Path] = []
    for name in paths:
        path = Path(name)
        try:
            if path.is_dir():
                files += sorted(
                    entry for entry in path.rglob("*") if entry.is_file() and not _hidden(entry.relative_to(path))
                )
            else:
                path.open("rb").close()
                files.append(path)
        except OSError as error:
            raise Unreadable(f"{name} cannot be read: {error.strerror or error}") from error
    return files


def text_of(file: Path) -> str:
    """The file's text in UTF-8. Raises Unreadable, also for content that is no text."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise Unreadable(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise Unreadable(f"{file} cannot be read: it is no text ({error.reason} at byte {error.start})") from error


def records_of(file: Path) -> Iterator[Record]:
    """The records of the file. Raises Unreadable."""
    name = str(file)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise Unreadable(f"{name} cannot be read: {error.strerror or error}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield Record(name, None, f"not JSON: {error.reason} at byte {error.start}")
        return
    values, problem = _parsed(text)
    if problem:
        values, problem = _concatenated_values(text) or (values, problem)
    if not problem:
        for value in values:
            yield from _records(name, value)
        return
    # not splitlines(): JSON strings may contain other line separators
    lines = [line for line in text.split("\n") if line.strip()]
    parsed = [_parsed(line) for line in lines]
    if len(lines) < 2 or all(line_problem for _, line_problem in parsed):
        yield Record(name, None, problem)
        return
    for number, (items, line_problem) in enumerate(parsed, 1):
        if line_problem:
            yield Record(name, None, f"line {number}: {line_problem}")
        for value in items:
            yield from _records(name, value)


def _parsed(text: str) -> tuple[list[Any], str]:
    """The JSON values in the text, and the problem or "". The elements of a JSON list count as values."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return [], f"not JSON: {' '.join(str(error).split())}" if text.strip() else "not JSON: the file is empty"
    return (value, "") if isinstance(value, list) else ([value], "")


def _concatenated_values(text: str) -> tuple[list[Any], str] | None:
    """The values of a text with several JSON values, as `jq` and `aws` print; None for a text with other content
    between the values.
    """
    decoder, values, start = json.JSONDecoder(), list[Any](), _after_blanks(text, 0)
    try:
        while start < len(text):
            value, end = decoder.raw_decode(text, start)
            values += value if isinstance(value, list) else [value]
            start = _after_blanks(text, end)
    except (ValueError, RecursionError):
        return None
    return (values, "") if values else None


def _after_blanks(text: str, start: int) -> int:
    match = _BLANKS.match(text, start)
    return match.end() if match is not None else start


def _records(name: str, value: Any) -> Iterator[Record]:
    """The records in one JSON value. Events are unpacked from answers of `aws sqs receive-message`, from messages, and
    from Lambda's records for a failure destination, whose `requestPayload` is the event.
    """
    if isinstance(value, dict) and isinstance(value.get("Messages"), list):
        for message in value["Messages"]:
            yield from _records(name, message)
        return
    body = value.get("Body", value.get("body")) if isinstance(value, dict) else None
    if isinstance(body, str) and "detail-type" not in value:
        values, problem = _parsed(body)
        for event in values:
            yield from _records(name, event)
        if problem:
            yield Record(name, None, f"the body of a message is {problem}")
        return
    if isinstance(value, dict) and "requestContext" in value and isinstance(value.get("requestPayload"), dict):
        yield from _records(name, value["requestPayload"])
        return
    yield _record(name, value)


def _record(name: str, value: Any) -> Record:
    if isinstance(value, dict) and "DDBStreamBatchInfo" in value:
        return Record(name, None, "no event: a failed batch of the table's stream; the next resync handles its changes")
    if not isinstance(value, dict):
        return Record(name, None, f"no event: a JSON {type(value).__name__}, not an object")
    kind = value.get("detail-type", value.get("detail_type"))  # AWS's documentation uses both spellings
    missing_keys = [
        key for key, field in (("source", value.get("source")), ("detail-type", kind)) if not isinstance(field, str)
    ]
    if missing_keys:
        return Record(name, None, f"no event: {' and '.join(missing_keys)} missing")
    return Record(name, value)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
