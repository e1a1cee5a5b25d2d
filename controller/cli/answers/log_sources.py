"""Sources of a cluster's log lines: CloudWatch, or the log files of an emulation of AWS (`dyntrain local`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dyntrain.controller.contract.errors import GiveUp

if TYPE_CHECKING:
    from dyntrain.controller.adapters.logs import CloudWatchLogs, LogLine

KINDS = ("worker", "node", "coordinator", "ps-lite", "prepare")  # of logs
LOG_PATTERNS = {"worker": "worker*.log", "node": "node.log", "coordinator": "coordinator.log", "ps-lite": "pslite.log"}
LATE_SECONDS = 120.0  # a busy CloudWatch agent may send lines this late
LINES_SEARCHED = 1000  # so many lines at the start of a node's log are searched for the cluster's name
_WORKER_NUMBER = re.compile(r"-\d+$")  # the number at the end of a log's name, as in worker-1
_ISO_TIME = re.compile(r"^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)")


@dataclass(frozen=True)
class LineFilter:  # for log lines
    """A filter for log lines, in which a field with the value None accepts log lines with any value."""

    cluster: str  # name of the cluster
    job: str | None  # name of the job
    instances: frozenset[str] | None  # instance ids
    kinds: frozenset[str]  # of logs, some of KINDS

    def accepts_stream(self, name: str) -> bool:
        """Whether the filter accepts a log stream, given the stream's name `<cluster>/<job>/<instance>/<kind>`."""
        stream_parts = name.split("/")
        if (
            len(stream_parts) != 4
            or stream_parts[0] != self.cluster
            or _WORKER_NUMBER.sub("", stream_parts[3]) not in self.kinds
        ):
            return False
        return self.job in (None, stream_parts[1]) and (self.instances is None or stream_parts[2] in self.instances)


@dataclass(frozen=True)
class SourceLine:
    """A log line with the instance and the kind of log from which the line comes, such as `i-0123 worker`."""

    who: str  # the instance and the kind of log
    text: str  # of the line


class Source(Protocol):  # of log lines
    def next(self) -> Iterator[SourceLine]:
        """The log lines that are new since the last call. The first call returns all log lines since the start time."""


@dataclass
class FromCloudWatch:  # a source of log lines
    """A source of log lines in CloudWatch. Each line is returned only once, although machines may send lines late and
    out of order.
    """

    store: CloudWatchLogs
    wanted: LineFilter  # accepts the lines to return
    since: float  # time of the first line to return
    seen: dict[str, float] = field(default_factory=dict)  # times of the lines returned so far, by line id

    @property
    def log_group(self) -> str:
        return f"/dyntrain/{self.wanted.cluster}"

    def next(self) -> Iterator[SourceLine]:
        prefix = f"{self.wanted.cluster}/{self.wanted.job}/" if self.wanted.job else f"{self.wanted.cluster}/"
        stream_names = [name for name in self.store.streams(self.log_group, prefix) if self.wanted.accepts_stream(name)]
        new_lines = self._unseen_lines(list(self.store.lines(self.log_group, stream_names, self.since)))
        for line in new_lines:
            _, _, instance, kind = line.stream.split("/")
            yield SourceLine(f"{instance} {kind}", line.text.rstrip("\n"))

    def _unseen_lines(self, lines: Sequence[LogLine]) -> list[LogLine]:
        new_lines = sorted((line for line in lines if line.id not in self.seen), key=lambda line: line.at)
        self.seen.update({line.id: line.at for line in new_lines})
        if self.seen:
            self.since = max(self.since, max(self.seen.values()) - LATE_SECONDS)
            self.seen = {line_id: line_time for line_id, line_time in self.seen.items() if line_time >= self.since}
        return new_lines


@dataclass
class FromFiles:  # a source of log lines
    """A source of log lines in the files that the machines of an emulation of AWS write below `directory`. Machines
    whose node log names a cluster other than the wanted cluster are left out. A line without a time gets the time of
    the preceding line. Leading lines without a time get the earlier of `since` and the file's modification time. Raises
    GiveUp for a filter by job, since the log files do not name jobs.
    """

    directory: Path  # of the emulation of AWS
    wanted: LineFilter  # accepts the lines to return
    since: float  # time of the first line to return
    offsets: dict[Path, int] = field(default_factory=dict)  # number of bytes read so far, by file
    clusters: dict[str, str] = field(default_factory=dict)  # name of the machine's cluster, by machine

    def __post_init__(self) -> None:
        if not (self.directory / "machines").is_dir():
            raise GiveUp(f"{self.directory} is not the directory of an embedded cloud: it contains no folder machines/")
        if self.wanted.job is not None:
            raise GiveUp("log lines of an embedded cloud cannot be filtered by job: omit --job, or use --since")

    def next(self) -> Iterator[SourceLine]:
        """The log lines that are new since the last call, sorted by time. Lines from the same file stay in the file's
        order.
        """
        timed_lines = [
            (line_time, SourceLine(f"{machine_folder.name} {file.stem if kind == 'worker' else kind}", text))
            for machine_folder in sorted((self.directory / "machines").iterdir())
            if self._may_be_of_cluster(machine_folder)
            for kind in KINDS
            if kind in self.wanted.kinds
            for file in files_of(machine_folder, kind)
            for line_time, text in self._new_lines(file)
        ]
        return iter([line for _, line in sorted(timed_lines, key=lambda pair: pair[0])])

    def _may_be_of_cluster(self, machine: Path) -> bool:
        if self.wanted.instances is not None and machine.name not in self.wanted.instances:
            return False
        if machine.name not in self.clusters and (cluster_name := cluster_of_machine(machine)):
            self.clusters[machine.name] = cluster_name
        return self.clusters.get(machine.name) in (None, self.wanted.cluster)

    def _new_lines(self, file: Path) -> Iterator[tuple[float, str]]:
        """The complete lines that were appended to the file since the last call, with the times of the lines."""
        byte_offset = self.offsets.get(file, 0)
        try:
            file_size, modified_at = file.stat().st_size, file.stat().st_mtime
            if file_size < byte_offset:  # the file was truncated
                byte_offset = 0
            with file.open("rb") as opened_file:
                opened_file.seek(byte_offset)
                new_bytes = opened_file.read()
        except OSError:
            return
        complete_lines = new_bytes[: new_bytes.rfind(b"\n") + 1]
        self.offsets[file] = byte_offset + len(complete_lines)
        line_time, latest_time = min(self.since, modified_at), 0.0
        for line in complete_lines.decode(errors="replace").splitlines():
            line_time = time_of_line(line) or line_time
            latest_time = max(latest_time, line_time)
            if line_time >= self.since:
                yield latest_time, line


def time_of_line(text: str) -> float | None:
    """A log line's time, or None. The time is the field `time` of a JSON line, or an ISO 8601 time at the start of a
    line that is not JSON.
    """
    if text.startswith("{"):
        try:
            return float(json.loads(text)["time"])
        except (ValueError, KeyError, TypeError):
            return None
    match = _ISO_TIME.match(text)
    if match is None:
        return None
    try:
        return datetime.fromisoformat(f"{match[1]}T{match[2]}").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def cluster_of_machine(machine: Path) -> str | None:
    """The name of the machine's cluster in the machine's node log, or None if the log names no cluster yet."""
    for file in files_of(machine, "node"):
        try:
            with file.open(encoding="utf-8", errors="replace") as log_file:
                for line in islice(log_file, LINES_SEARCHED):
                    if cluster_name := _json_field(line, "cluster"):
                        return str(cluster_name)
        except OSError:
            continue
    return None


def _json_field(text: str, name: str) -> Any:
    """The value of the field `name` in a JSON line, or None if the line is not JSON or lacks the field."""
    try:
        json_value = json.loads(text)
    except ValueError:
        return None
    return json_value.get(name) if isinstance(json_value, dict) else None


def files_of(machine: Path, kind: str) -> list[Path]:
    """The sorted log files of one kind, such as `worker`, in the folder of one machine of an emulation of AWS."""
    file_pattern = LOG_PATTERNS.get(kind, "prepare-*.log")
    log_files = [
        file
        for log_root in (".", "*", "disk/upper")
        for file in machine.glob(f"{log_root}/var/log/dyntrain/{file_pattern}")
    ]
    return sorted(set(log_files))
