"""Reads the hosts of a manual job from the file `host_worker`, which the user edits: one private address a line.

`dyntrain.training.launch.hosts` describes the syntax of the lines. `FileHosts` has the same interface as
`dyntrain.training.coordinator.hosts.AwsHosts`, but needs no AWS. An edit takes effect once the host file has not
changed for `settle` seconds, is complete (it ends with a newline and every line is a host), and lists every base host.
The job's hosts do not change before an edit is complete, since editors and `cp` empty a file before they fill it. When
a worker joins or leaves, a line is written to the file `host_worker_log` (`dyntrain.training.coordinator.host_log`).
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import logging
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from dyntrain.controller.contract.messages import CoordinatorEndpoint, Target
from dyntrain.controller.contract.reports import JobReport
from dyntrain.training.coordinator.host_log import HOST_FILE, HostLog, training_hosts, write_hosts
from dyntrain.training.coordinator.hosts import HostsError
from dyntrain.training.launch.hosts import Host, decode_text, lines_of

MAX_FILE_BYTES = 1024 * 1024  # a longer file cannot be a list of hosts
log = logging.getLogger(__name__)


class EditResult(Enum):
    """Result of an edit of the host file.

    A member's value completes the warning "host_worker ...", as in "host_worker names a host twice".
    """

    ACCEPTED = "accepted"
    UNCHANGED = "names the present hosts"
    UNSETTLED = "is still being written"
    TORN = "does not end with a newline, so it may be incomplete"
    NO_ADDRESS = "is no host: write an address, or a name that can be looked up here"
    TWICE = "names a host twice"
    TOO_FEW = "names fewer hosts than the minimum"
    BASE_REMOVED = "lacks a base host: base hosts cannot leave by an edit"


@dataclass(frozen=True)
class EditRules:
    """Conditions for a valid edit of the host file.

    The file must list all `base` hosts and at least `minimum` hosts, and must not have changed for `settle` seconds.
    """

    base: tuple[str, ...]  # hosts that may not be removed
    minimum: int = 1  # smallest number of hosts
    settle: float = 2.0  # seconds that the file must stay unchanged


@dataclass(frozen=True)
class WatchedFile:
    """The present hosts of the job, the host file's last text, and the time when this text was first read.

    An instance never changes: `with_new_text` returns a new instance.
    """

    hosts: tuple[str, ...]  # present hosts of the job
    text: str = ""  # content of the host file, as last read
    changed_at: float = 0.0  # when `text` last changed

    def accept_at_once(self, text: str, rules: EditRules) -> WatchedFile:
        """Return the state with the hosts of an existing host file, without waiting `settle` seconds.

        If the file is invalid, the state does not change.
        """
        hosts, verdict = judge(text, rules)
        return self._with_hosts(hosts) if verdict is EditResult.ACCEPTED else self

    def with_new_text(self, text: str, rules: EditRules, now: float) -> tuple[WatchedFile, EditResult]:
        """Return the state after `text` was read from the host file at time `now`, and the result of the edit."""
        if text != self.text:
            return replace(self, text=text, changed_at=now), EditResult.UNSETTLED
        if now - self.changed_at < rules.settle:
            return self, EditResult.UNSETTLED
        hosts, verdict = judge(text, rules)
        if verdict is not EditResult.ACCEPTED:
            return self, verdict
        if set(hosts) == set(self.hosts):
            return self, EditResult.UNCHANGED
        return self._with_hosts(hosts), EditResult.ACCEPTED

    def _with_hosts(self, hosts: Sequence[str]) -> WatchedFile:
        """Return a state with `hosts` as the job's hosts: hosts that remain come first, then the new hosts."""
        return replace(
            self,
            hosts=(
                *(host for host in self.hosts if host in hosts),
                *(host for host in hosts if host not in self.hosts),
            ),
        )


def judge(text: str, rules: EditRules) -> tuple[tuple[str, ...], EditResult]:
    """Return the hosts in the host file's `text`, and whether the text is valid.

    Blank lines and the order of the lines do not matter.
    """
    named_hosts = tuple(line.strip() for line in text.splitlines() if line.strip())
    if text and not text.endswith("\n"):
        return named_hosts, EditResult.TORN
    if not all(map(_is_address, named_hosts)):
        return named_hosts, EditResult.NO_ADDRESS
    if len(set(named_hosts)) != len(named_hosts):
        return named_hosts, EditResult.TWICE
    if len(named_hosts) < max(1, rules.minimum):
        return named_hosts, EditResult.TOO_FEW
    if not set(rules.base) <= set(named_hosts):
        return named_hosts, EditResult.BASE_REMOVED
    return named_hosts, EditResult.ACCEPTED


def _is_address(line: str) -> bool:
    try:
        ipaddress.ip_address(line)
    except ValueError:
        return False
    return True


def _first_invalid_line(text: str) -> tuple[int, str]:
    numbered_lines = ((line_number, line.strip()) for line_number, line in enumerate(text.splitlines(), 1))
    return next((line_number, line) for line_number, line in numbered_lines if line and not _is_address(line))


def instance_of(ip: str) -> str:
    """Return an instance id for a host of a manual job, derived from the host's address."""
    return f"i-{hashlib.sha256(ip.encode()).hexdigest()[:17]}"


class FileHosts:
    """The hosts of a manual job.

    With `elastic`, `hosts` are the base hosts, and the host file lists all hosts. Without `elastic`, `hosts` are all
    hosts, and no host file is used.

    An existing host file and its log are kept, as the job may be a resumed job.
    """

    def __init__(
        self,
        directory: Path,
        hosts: Sequence[str],
        minimum: int = 1,
        settle: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        elastic: bool = True,
        look_up: Callable[[str], str] = lambda name: str(ipaddress.ip_address(name)),
        destinations: Mapping[str, tuple[str, ...]] | None = None,
        slots: Mapping[str, int] | None = None,
    ) -> None:
        self._slots = dict(slots or {})
        self._elastic, self._look_up = elastic, look_up
        self._destinations = dict(destinations or {})
        self._trained: set[str] = set()
        self._raw, self._text = b"", ""  # last content of the file, as bytes and with addresses in place of names
        self.file = directory / HOST_FILE
        self._rules, self._clock = EditRules(tuple(hosts), minimum, settle), clock
        self._revision = 1
        self._causes: dict[str, str] = {}
        self._last_refusal: EditResult | None = None
        self.endpoint: CoordinatorEndpoint | None = None
        self.token = ""
        self.last_report: JobReport | None = None
        self._watched = WatchedFile(tuple(hosts))
        self.log = HostLog(directory) if elastic else None
        if elastic and self.file.exists():
            self._watched = self._watched.accept_at_once(self._read_file(), self._rules)
        elif elastic:
            write_hosts(directory, hosts)
        self._addresses = {instance_of(host): host for host in self.hosts}

    @property
    def hosts(self) -> tuple[str, ...]:
        """The present hosts of the job, in order of joining."""
        return self._watched.hosts

    @property
    def over(self) -> bool:
        """Whether the job has finished or failed."""
        return self.last_report is not None and self.last_report.state in ("finished", "failed")

    def read_target(self) -> Target:
        """Read the host file and return the hosts that the job should have. Raises HostsError."""
        if not self._elastic:
            return self._target()
        previous_hosts = self.hosts
        self._watched, verdict = self._watched.with_new_text(self._read_file(), self._rules, self._clock())
        if verdict is EditResult.ACCEPTED:
            self._record_change(previous_hosts, f"written into {HOST_FILE}", f"taken out of {HOST_FILE}")
        self._warn_of_refusal(verdict)
        return self._target()

    def set_hosts(self, hosts: Sequence[str], cause: str) -> None:
        """Set the hosts of a job that has no host file."""
        previous_hosts, self._watched = self.hosts, replace(self._watched, hosts=tuple(hosts))
        self._record_change(previous_hosts, cause, cause)

    def _record_change(self, previous_hosts: Sequence[str], added_cause: str, removed_cause: str) -> None:
        self._revision += 1
        added_causes = {instance_of(host): added_cause for host in self.hosts if host not in previous_hosts}
        removed_causes = {instance_of(host): removed_cause for host in previous_hosts if host not in self.hosts}
        self._causes = {**added_causes, **removed_causes}
        self._addresses |= {instance_of(host): host for host in self.hosts}

    def _read_file(self) -> str:
        try:
            with self.file.open("rb") as host_file:
                raw_text = host_file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise HostsError(f"{self.file}: {error.strerror}") from error
        if len(raw_text) > MAX_FILE_BYTES:
            raise HostsError(f"{self.file} is longer than {MAX_FILE_BYTES} bytes, so it cannot be a list of hosts")
        if raw_text != self._raw:
            self._raw, self._text = raw_text, self._with_addresses(raw_text)
        return self._text

    def _with_addresses(self, raw_text: bytes) -> str:
        """Return `raw_text` as text, with each host's name replaced by its address.

        A line whose host cannot be looked up stays unchanged, and so does an incomplete text.
        """
        try:
            text = decode_text(raw_text)
            lines = lines_of(text, self.file.name)
        except ValueError:
            return raw_text.decode("utf-8", "replace")
        if not text.endswith("\n"):
            return text
        numbered_lines = dict(enumerate(text.splitlines(), 1))
        for line in lines:
            with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
                address = numbered_lines[line.number] = self._look_up(line.name)
                self._destinations.setdefault(address, Host(address, line).destination)
                if line.slots is not None:
                    self._slots.setdefault(address, line.slots)
        line_numbers = {line.number for line in lines}
        return "".join(f"{content if number in line_numbers else ''}\n" for number, content in numbered_lines.items())

    def destination(self, host: str) -> tuple[str, ...]:
        """The arguments of ssh that name the host with this address."""
        return self._destinations.get(host, ("--", host))

    def slots(self, host: str) -> int | None:
        """The number of workers (`slots=`) in the host's first line, or None if the line gives no number."""
        return self._slots.get(host)

    def untrained_hosts(self) -> str:
        """The names of the base hosts that never trained in this job, or "" if no host trained."""
        idle_hosts = [host for host in self._rules.base if instance_of(host) not in self._trained]
        return ", ".join(self.destination(host)[-1] for host in idle_hosts) if self._trained else ""

    def _target(self) -> Target:
        target = Target.of(self._revision, tuple(instance_of(host) for host in self._watched.hosts))
        return target.model_copy(update={"causes": self._causes})

    def publish(self, endpoint: CoordinatorEndpoint, token: str) -> None:
        self.token, self.endpoint = token, endpoint

    def read_endpoint(self) -> CoordinatorEndpoint | None:
        return self.endpoint

    def report(self, report: JobReport) -> None:
        self.last_report = report
        self._trained |= {member.instance_id for member in report.members if member.active}
        if self.log is None:
            return
        try:
            self.log.record_hosts(training_hosts(self.log.hosts, report, self._addresses))
        except OSError as error:
            raise HostsError(f"{self.log.path}: {error.strerror}") from error

    def _warn_of_refusal(self, verdict: EditResult) -> None:
        """Log a warning about an invalid edit of the host file, once for each edit."""
        is_refusal = verdict not in (EditResult.ACCEPTED, EditResult.UNCHANGED, EditResult.UNSETTLED)
        if is_refusal and verdict is not self._last_refusal:
            refusal_text = verdict.value
            if verdict is EditResult.NO_ADDRESS:
                line_number, invalid_line = _first_invalid_line(self._text)
                refusal_text = f"line {line_number}: {invalid_line!r} {refusal_text}"
            log.warning("%s %s; the membership stays as it is", self.file, refusal_text)
        self._last_refusal = verdict if is_refusal else None
