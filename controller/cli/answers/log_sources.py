"""Sources of a cluster's log lines: CloudWatch, or the files of an embedded cloud."""

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

KINDS = ("worker", "node", "coordinator", "ps-lite", "prepare")
LOG_PATTERNS = {"worker": "worker*.log", "node": "node.log", "coordinator": "coordinator.log", "ps-lite": "pslite.log"}
LATE_SECONDS = 120.0  # a busy CloudWatch agent may send lines this late
LINES_SEARCHED = 1000  # lines of a node's log that are searched for the cluster's name
_WORKER_NUMBER = re.compile(r"-\d+$")  # number of a further worker on the node, as in worker-1
_ISO_TIME = re.compile(r"^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)")


@dataclass(frozen=True)
class LineFilter:
    """A filter for log lines. None in a field: any value fits."""

    cluster: str
    job: str | None
    instances: frozenset[str] | None
    kinds: frozenset[str]

    def fits(self, name: str) -> bool:
        """Whether the log stream `<cluster>/<job>/<instance>/<kind>` fits the filter."""
        parts = name.split("/")
        if len(parts) != 4 or parts[0] != self.cluster or _WORKER_NUMBER.sub("", parts[3]) not in self.kinds:
            return False
        return self.job in (None, parts[1]) and (self.instances is None or parts[2] in self.instances)


@dataclass(frozen=True)
class SourceLine:
    """A log line. `who`: the instance and the kind of log, such as `i-0123 worker`."""

    who: str
    text: str


class Source(Protocol):
    def next(self) -> Iterator[SourceLine]:
        """New lines since the last call; the first call returns all lines since the start time."""


@dataclass
class FromCloudWatch:
    """Log lines from CloudWatch. Each line is returned once, although machines send lines out of order."""

    store: CloudWatchLogs
    wanted: LineFilter
    since: float
    seen: dict[str, float] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return f"/dyntrain/{self.wanted.cluster}"

    def next(self) -> Iterator[SourceLine]:
        prefix = f"{self.wanted.cluster}/{self.wanted.job}/" if self.wanted.job else f"{self.wanted.cluster}/"
        streams = [name for name in self.store.streams(self.group, prefix) if self.wanted.fits(name)]
        fresh = self._fresh(list(self.store.lines(self.group, streams, self.since)))
        for line in fresh:
            _, _, instance, kind = line.stream.split("/")
            yield SourceLine(f"{instance} {kind}", line.text.rstrip("\n"))

    def _fresh(self, lines: Sequence[LogLine]) -> list[LogLine]:
        fresh = sorted((line for line in lines if line.id not in self.seen), key=lambda line: line.at)
        self.seen.update({line.id: line.at for line in fresh})
        if self.seen:
            self.since = max(self.since, max(self.seen.values()) - LATE_SECONDS)
            self.seen = {name: at for name, at in self.seen.items() if at >= self.since}
        return fresh


@dataclass
class FromFiles:
    """Log lines from the machines' files below an embedded cloud's directory. Machines whose node log names another
    cluster are left out. A line without a time counts with the time of the line before, or of the file.
    Raises GiveUp for a filter with a job: the files do not name jobs.
    """

    directory: Path
    wanted: LineFilter
    since: float
    offsets: dict[Path, int] = field(default_factory=dict)  # bytes by file
    clusters: dict[str, str] = field(default_factory=dict)  # by machine

    def __post_init__(self) -> None:
        if not (self.directory / "machines").is_dir():
            raise GiveUp(f"{self.directory} is not the directory of an embedded cloud: it contains no folder machines/")
        if self.wanted.job is not None:
            raise GiveUp("the log files of an embedded cloud do not name jobs: leave --job out, or give --since")

    def next(self) -> Iterator[SourceLine]:
        """New lines, sorted by time. Lines of one file keep their order."""
        lines = [
            (at, SourceLine(f"{machine.name} {file.stem if kind == 'worker' else kind}", text))
            for machine in sorted((self.directory / "machines").iterdir())
            if self._fits(machine)
            for kind in KINDS
            if kind in self.wanted.kinds
            for file in files_of(machine, kind)
            for at, text in self._lines(file)
        ]
        return iter([line for _, line in sorted(lines, key=lambda pair: pair[0])])

    def _fits(self, machine: Path) -> bool:
        if self.wanted.instances is not None and machine.name not in self.wanted.instances:
            return False
        if machine.name not in self.clusters and (named := cluster_of(machine)):
            self.clusters[machine.name] = named
        return self.clusters.get(machine.name) in (None, self.wanted.cluster)

    def _lines(self, file: Path) -> Iterator[tuple[float, str]]:
        """New complete lines of the file, each with its time."""
        offset = self.offsets.get(file, 0)
        try:
            size, changed = file.stat().st_size, file.stat().st_mtime
            if size < offset:  # the file was truncated
                offset = 0
            with file.open("rb") as stream:
                stream.seek(offset)
                data = stream.read()
        except OSError:
            return
        complete_lines = data[: data.rfind(b"\n") + 1]
        self.offsets[file] = offset + len(complete_lines)
        at, latest = min(self.since, changed), 0.0
        for text in complete_lines.decode(errors="replace").splitlines():
            at = time_of(text) or at
            latest = max(latest, at)
            if at >= self.since:
                yield latest, text


def time_of(text: str) -> float | None:
    """The line's time, from `time` in a JSON line or ISO 8601 at the line's start; None for a line without a time."""
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


def cluster_of(machine: Path) -> str | None:
    """The cluster that the machine's node log names; None if the log names no cluster yet."""
    for file in files_of(machine, "node"):
        try:
            with file.open(encoding="utf-8", errors="replace") as lines:
                for text in islice(lines, LINES_SEARCHED):
                    if named := _field(text, "cluster"):
                        return str(named)
        except OSError:
            continue
    return None


def _field(text: str, name: str) -> Any:
    """The value of the field `name` in a JSON line; None without such a field."""
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record.get(name) if isinstance(record, dict) else None


def files_of(machine: Path, kind: str) -> list[Path]:
    """The log files of an embedded cloud's machine, which is a process with its own root folder or a virtual system."""
    pattern = LOG_PATTERNS.get(kind, "prepare-*.log")
    files = [file for root in (".", "*", "disk/upper") for file in machine.glob(f"{root}/var/log/dyntrain/{pattern}")]
    return sorted(set(files))
