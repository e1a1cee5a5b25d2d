"""Manual mode: the membership is the file `host_worker`, one private address a line, that people edit.

The same port as `training.hosts.AwsHosts`, for a job without a cloud. An edit counts once the file has been the same for `settle` seconds, is
whole (it ends with a newline and every line is an address), and names every base host. Until then the membership stands: editors and `cp`
empty a file before they fill it. Each change in force is appended to `host_worker_log` as `<seq> ADDED|REMOVED <ip> <ns>`.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from controller.contract import CoordinatorEndpoint, JobReport, Target
from training.hosts import HostsError

HOST_FILE, HOST_LOG = "host_worker", "host_worker_log"
MAX_FILE = 1024 * 1024  # a longer one is not read: it is no list of hosts
log = logging.getLogger(__name__)


class Verdict(Enum):
    """What an edit comes to."""

    ACCEPTED = "accepted"
    UNCHANGED = "names the hosts that are in force"
    UNSETTLED = "is still being written"
    TORN = "does not end with a newline: taken for half written"
    NO_ADDRESS = "holds a line that is no IP address"
    TWICE = "names a host twice"
    TOO_FEW = "names fewer hosts than the minimum"
    BASE_REMOVED = "lacks a base host: base hosts cannot leave by an edit"


@dataclass(frozen=True)
class Rules:
    base: tuple[str, ...]
    minimum: int = 1
    settle: float = 2.0


@dataclass(frozen=True)
class Reading:
    """The hosts in force, and the text that was last seen with the time since when. Pure: `look` returns the next one."""

    hosts: tuple[str, ...]
    text: str = ""
    since: float = 0.0

    def look(self, text: str, rules: Rules, now: float) -> tuple[Reading, Verdict]:
        if text != self.text:
            return replace(self, text=text, since=now), Verdict.UNSETTLED
        if now - self.since < rules.settle:
            return self, Verdict.UNSETTLED
        hosts, verdict = judge(text, rules)
        if verdict is not Verdict.ACCEPTED:
            return self, verdict
        if set(hosts) == set(self.hosts):
            return self, Verdict.UNCHANGED
        return replace(self, hosts=(*(h for h in self.hosts if h in hosts), *(h for h in hosts if h not in self.hosts))), Verdict.ACCEPTED


def judge(text: str, rules: Rules) -> tuple[tuple[str, ...], Verdict]:
    """The hosts that a settled text names. Blank lines count for nothing, the order is people's own."""
    hosts = tuple(line.strip() for line in text.splitlines() if line.strip())
    if text and not text.endswith("\n"):
        return hosts, Verdict.TORN
    if not all(map(_is_address, hosts)):
        return hosts, Verdict.NO_ADDRESS
    if len(set(hosts)) != len(hosts):
        return hosts, Verdict.TWICE
    if len(hosts) < max(1, rules.minimum):
        return hosts, Verdict.TOO_FEW
    if not set(rules.base) <= set(hosts):
        return hosts, Verdict.BASE_REMOVED
    return hosts, Verdict.ACCEPTED


def _is_address(line: str) -> bool:
    try:
        ipaddress.ip_address(line)
    except ValueError:
        return False
    return True


def instance_of(ip: str) -> str:
    """Hosts of a manual job have no instance id; this one is always the same for an address."""
    return f"i-{hashlib.sha256(ip.encode()).hexdigest()[:17]}"


class FileHosts:
    """`hosts` are the base hosts; not `elastic`: they stay, and no file is made or read.

    Makes both files when they are missing, and keeps those that are there: the job may have come back.
    """

    def __init__(
        self,
        directory: Path,
        hosts: Sequence[str],
        minimum: int = 1,
        settle: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        elastic: bool = True,
    ) -> None:
        self._elastic = elastic
        self.file, self.log = directory / HOST_FILE, directory / HOST_LOG
        self._rules, self._clock = Rules(tuple(hosts), minimum, settle), clock
        self._revision = 1
        self._complaint: Verdict | None = None
        self.endpoint: CoordinatorEndpoint | None = None
        self.token = ""
        self.reported: JobReport | None = None
        if not elastic:
            self._sequence, self._reading = 0, Reading(tuple(hosts))
            return
        logged = _read_log(self.log)
        recorded = _in_force(logged)
        self._sequence, self._reading = 1 + max((entry[0] for entry in logged), default=-1), Reading(tuple(recorded))
        if not self.file.exists():
            _write(self.file, "".join(f"{host}\n" for host in (recorded or hosts)))
        self.log.touch()
        if not recorded:
            self._record(tuple(hosts))

    @property
    def hosts(self) -> tuple[str, ...]:
        """In force now, in order of joining."""
        return self._reading.hosts

    def read_target(self) -> Target:
        if not self._elastic:
            return self._target()
        try:
            with self.file.open("rb") as file:
                raw = file.read(MAX_FILE + 1)
        except OSError as error:
            raise HostsError(f"{self.file}: {error.strerror}") from error
        if len(raw) > MAX_FILE:
            raise HostsError(f"{self.file} is longer than {MAX_FILE} bytes: that is no list of hosts")
        before = self._reading.hosts
        reading, verdict = self._reading.look(raw.decode("utf-8", "replace"), self._rules, self._clock())
        if verdict is Verdict.ACCEPTED:
            self._record(reading.hosts, before)
            self._revision += 1
        self._reading = replace(reading, hosts=self._reading.hosts)
        self._complain(verdict)
        return self._target()

    def _target(self) -> Target:
        return Target.of(self._revision, tuple(instance_of(host) for host in self._reading.hosts))

    def publish(self, endpoint: CoordinatorEndpoint, token: str) -> None:
        self.token, self.endpoint = token, endpoint

    def published(self) -> CoordinatorEndpoint | None:
        return self.endpoint

    def report(self, report: JobReport) -> None:
        self.reported = report

    def _record(self, hosts: tuple[str, ...], before: tuple[str, ...] = ()) -> None:
        """The log first: a membership that is in force is always on record."""
        changes = [("REMOVED", host) for host in before if host not in hosts] + [("ADDED", host) for host in hosts if host not in before]
        lines = "".join(f"{self._sequence + i} {change} {host} {time.time_ns()}\n" for i, (change, host) in enumerate(changes))
        try:
            with self.log.open("ab") as file:
                file.write(lines.encode())
        except OSError as error:
            raise HostsError(f"{self.log}: {error.strerror}; the edit of {HOST_FILE} is not in force") from error
        self._sequence += len(changes)
        self._reading = replace(self._reading, hosts=hosts)
        for change, host in changes if before else ():
            log.info("%s %s", change, host)

    def _complain(self, verdict: Verdict) -> None:
        """Once for each wrong edit, not at every look."""
        refused = verdict not in (Verdict.ACCEPTED, Verdict.UNCHANGED, Verdict.UNSETTLED)
        if refused and verdict is not self._complaint:
            log.warning("%s %s; the membership stays as it is", self.file, verdict.value)
        self._complaint = verdict if refused else None


def _read_log(path: Path) -> list[tuple[int, str, str]]:
    """(sequence, change, address) of the whole lines; a torn last one never counted, and is ended so that the next begins afresh."""
    if not path.exists():
        return []
    raw = path.read_bytes()
    if raw and not raw.endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")
    entries = []
    for line in raw[: raw.rfind(b"\n") + 1].decode("utf-8", "replace").splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[0].isdecimal() and fields[1] in ("ADDED", "REMOVED"):
            entries.append((int(fields[0]), fields[1], fields[2]))
    return entries


def _in_force(entries: Sequence[tuple[int, str, str]]) -> list[str]:
    hosts: list[str] = []
    for _, change, host in entries:
        if change == "ADDED" and host not in hosts:
            hosts.append(host)
        elif change == "REMOVED" and host in hosts:
            hosts.remove(host)
    return hosts


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
