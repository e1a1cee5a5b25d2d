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
FILES = {"worker": "worker*.log", "node": "node.log", "coordinator": "coordinator.log", "ps-lite": "pslite.log"}
LATE_SECONDS = 120.0  # a busy agent may send lines this late
LINES_READ = 1000  # lines of a node's log to read for its cluster's name
_FURTHER = re.compile(r"-\d+$")  # of a node with several workers: worker-1
_ISO = re.compile(r"^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)")


@dataclass(frozen=True)
class Wanted:
    """Which lines are wanted. A field of None: any."""

    cluster: str
    job: str | None
    instances: frozenset[str] | None
    kinds: frozenset[str]

    def stream(self, name: str) -> bool:
        """Whether the stream `<cluster>/<job>/<instance>/<kind>` is wanted."""
        parts = name.split("/")
        if len(parts) != 4 or parts[0] != self.cluster or _FURTHER.sub("", parts[3]) not in self.kinds:
            return False
        return self.job in (None, parts[1]) and (self.instances is None or parts[2] in self.instances)


@dataclass(frozen=True)
class SourceLine:
    """A log line; `who` is the instance and the kind of its log."""

    who: str
    text: str


class Source(Protocol):
    def next(self) -> Iterator[SourceLine]:
        """Lines since the last call; at first all since the start time."""


@dataclass
class FromCloudWatch:
    """Log lines from CloudWatch, each once, although lines of several machines arrive out of order."""

    store: CloudWatchLogs
    wanted: Wanted
    since: float
    seen: dict[str, float] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return f"/dyntrain/{self.wanted.cluster}"

    def next(self) -> Iterator[SourceLine]:
        prefix = f"{self.wanted.cluster}/{self.wanted.job}/" if self.wanted.job else f"{self.wanted.cluster}/"
        streams = [name for name in self.store.streams(self.group, prefix) if self.wanted.stream(name)]
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
    """Log lines of the machines below an embedded cloud's directory, except those whose node's log names another
    cluster; a machine's files outlive it. Lines that say no time are as old as the line before them, or as their file.
    Raises GiveUp for a job: these files are not kept by job.
    """

    directory: Path
    wanted: Wanted
    since: float
    read: dict[Path, int] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)  # of machines

    def __post_init__(self) -> None:
        if not (self.directory / "machines").is_dir():
            raise GiveUp(f"{self.directory} is no directory of an embedded cloud: it has no machines/ in it")
        if self.wanted.job is not None:
            raise GiveUp("the files of an embedded cloud are not kept by job; leave --job out, or give --since")

    def next(self) -> Iterator[SourceLine]:
        """New lines, sorted by time; those of one file in its own order."""
        lines = [
            (at, SourceLine(f"{machine.name} {file.stem if kind == 'worker' else kind}", text))
            for machine in sorted((self.directory / "machines").iterdir())
            if self._meant(machine)
            for kind in KINDS
            if kind in self.wanted.kinds
            for file in files_of(machine, kind)
            for at, text in self._lines(file)
        ]
        return iter([line for _, line in sorted(lines, key=lambda one: one[0])])

    def _meant(self, machine: Path) -> bool:
        if self.wanted.instances is not None and machine.name not in self.wanted.instances:
            return False
        if machine.name not in self.clusters and (named := cluster_of(machine)):
            self.clusters[machine.name] = named
        return self.clusters.get(machine.name) in (None, self.wanted.cluster)

    def _lines(self, file: Path) -> Iterator[tuple[float, str]]:
        """The lines, each with its time."""
        begun = self.read.get(file, 0)
        try:
            size, changed = file.stat().st_size, file.stat().st_mtime
            if size < begun:  # the beginning was cut off
                begun = 0
            with file.open("rb") as opened:
                opened.seek(begun)
                data = opened.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self.read[file] = begun + len(whole)
        at, latest = min(self.since, changed), 0.0
        for text in whole.decode(errors="replace").splitlines():
            at = time_of(text) or at
            latest = max(latest, at)
            if at >= self.since:
                yield latest, text


def time_of(text: str) -> float | None:
    """The line's time: `time` in a node's JSON, or ISO 8601 at its start; None when it has none."""
    if text.startswith("{"):
        try:
            return float(json.loads(text)["time"])
        except (ValueError, KeyError, TypeError):
            return None
    match = _ISO.match(text)
    if match is None:
        return None
    try:
        return datetime.fromisoformat(f"{match[1]}T{match[2]}").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def cluster_of(machine: Path) -> str | None:
    """The cluster in the log of the machine's node; None: not logged yet."""
    for file in files_of(machine, "node"):
        try:
            with file.open(encoding="utf-8", errors="replace") as lines:
                for text in islice(lines, LINES_READ):
                    if named := _field(text, "cluster"):
                        return str(named)
        except OSError:
            continue
    return None


def _field(text: str, name: str) -> Any:
    """A field of a node's JSON line; None when it is no such line, or has no such field."""
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record.get(name) if isinstance(record, dict) else None


def files_of(machine: Path, kind: str) -> list[Path]:
    """The log files of a machine of an embedded cloud: of a process with a root of its own, or a system with a disk."""
    pattern = FILES.get(kind, "prepare-*.log")
    files = [file for root in (".", "*", "disk/upper") for file in machine.glob(f"{root}/var/log/dyntrain/{pattern}")]
    return sorted(set(files))
