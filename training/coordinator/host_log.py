"""Writes the files `host_worker` and `host_worker_log`, which list the training workers for users and their scripts.

The launcher of AWS Dynamic Training wrote `host_worker` and `host_worker_log`, with the same content, in its own
directory. The file `host_worker` contains one IP address a line. When a worker has joined or left, the file
`host_worker_log` gets a line `<seq> ADDED|REMOVED <ip> <ns>`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dyntrain.controller.contract.reports import JobReport
from dyntrain.training.coordinator.whole_file import write_whole

HOST_FILE, HOST_LOG = "host_worker", "host_worker_log"
log = logging.getLogger(__name__)


def training_hosts(listed_hosts: Sequence[str], report: JobReport, addresses: Mapping[str, str]) -> tuple[str, ...]:
    """The addresses of the workers that train according to `report`, in order of joining. Pure.

    A worker is listed from its first step until it is no longer a member. Without members (the job starts, pauses or
    has ended), the list stays unchanged. `addresses` maps instance ids to IP addresses.
    """
    if report.state != "running" or not report.members:
        return tuple(listed_hosts)
    active_by_host = {
        addresses[member.instance_id]: member.active for member in report.members if member.instance_id in addresses
    }
    staying_hosts = [host for host in listed_hosts if host in active_by_host]
    return (*staying_hosts, *(host for host, active in active_by_host.items() if active and host not in staying_hosts))


class HostLog:
    """The file `host_worker_log` of a directory; a later launch continues after the log's last complete line."""

    def __init__(self, directory: Path) -> None:
        """Read the log `host_worker_log` of the directory, or create the log if missing. Raises OSError."""
        self.path = directory / HOST_LOG
        log_entries = _read_entries(self.path)
        self._sequence = 1 + max((sequence_number for sequence_number, _, _ in log_entries), default=-1)
        self.hosts = _current_hosts(log_entries)
        self.path.touch()

    def record_hosts(self, hosts: Sequence[str]) -> None:
        """Append a line to the log for each host that was added or removed since the last call.

        If the write raises OSError, no change is recorded.
        """
        changes = [("REMOVED", host) for host in self.hosts if host not in hosts]
        changes += [("ADDED", host) for host in hosts if host not in self.hosts]
        log_lines = [
            f"{self._sequence + index} {change} {host} {time.time_ns()}\n"
            for index, (change, host) in enumerate(changes)
        ]
        if changes:
            with self.path.open("ab") as file:
                file.write("".join(log_lines).encode())
        self._sequence += len(changes)
        self.hosts = tuple(hosts)
        for change, host in changes:
            log.info("%s %s", change, host)


def write_hosts(directory: Path, hosts: Iterable[str]) -> None:
    """Replace the file `host_worker` atomically by a list of `hosts`. Raises OSError."""
    write_whole(directory / HOST_FILE, "".join(f"{host}\n" for host in hosts).encode())


def _read_entries(path: Path) -> list[tuple[int, str, str]]:
    """Return (sequence number, change, address) of each complete line of the log.

    An incomplete last line of the log is ignored, and gets a newline, so that the next entry begins on a line of its
    own.
    """
    if not path.exists():
        return []
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")
    log_entries = []
    for line in content[: content.rfind(b"\n") + 1].decode("utf-8", "replace").splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[0].isdecimal() and fields[1] in ("ADDED", "REMOVED"):
            log_entries.append((int(fields[0]), fields[1], fields[2]))
    return log_entries


def _current_hosts(entries: Sequence[tuple[int, str, str]]) -> tuple[str, ...]:
    hosts: dict[str, None] = {}
    for _, change, host in entries:
        if change == "ADDED":
            hosts[host] = None
        else:
            hosts.pop(host, None)
    return tuple(hosts)
