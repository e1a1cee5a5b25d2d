"""Parses host files: each line names a host, by its address or by a name from DNS or `~/.ssh/config`.

A line may also contain `slots=`, an ssh port and a comment. Files may be in UTF-8 or UTF-16, with or without a byte
order mark. The job's processes connect to a host by its address. The command ssh gets the name as written in the host
file, so that the user's settings for ssh apply.
"""

from __future__ import annotations

import codecs
import contextlib
import ipaddress
import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dyntrain.training.protocol.slots import MOST_SLOTS

UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
LOOK_UP_SECONDS = 10.0  # for ssh to read its settings


class HostError(ValueError):
    """A line of a host file is wrong. The message names the line and says what to write."""


@dataclass(frozen=True)
class HostLine:
    """A parsed line of a host file.

    `host` does not contain ssh's port. `slots` is the number of workers on the host, or None if the line does not give
    the number.
    """

    number: int  # of the line in the file, from 1
    host: str  # name or address, with the user for ssh
    port: int | None = None  # port of ssh
    slots: int | None = None  # number of workers on the host

    @property
    def name(self) -> str:
        """The host's name or address, without the user name for ssh."""
        return self.host.rpartition("@")[2]


@dataclass(frozen=True)
class Host:
    """A host of a job.

    The job's other hosts reach the host at `address`, and `line` is the host's line in the host file.
    """

    address: str  # at which other hosts reach it
    line: HostLine

    @property
    def destination(self) -> tuple[str, ...]:
        """The arguments of ssh that name the host, which precede the remote command."""
        port_option = () if self.line.port is None else ("-p", str(self.line.port))
        return (*port_option, "--", self.line.host)


def decode_text(raw: bytes) -> str:
    """Decode text in UTF-8 or UTF-16, with or without a byte order mark. Raises ValueError."""
    text = raw.decode("utf-16" if raw.startswith(UTF16_MARKS) else "utf-8-sig")
    if "\0" in text:
        raise ValueError("holds zero bytes")
    return text


def lines_of(text: str, source: str) -> list[HostLine]:
    """Parse the lines of a host file. Words after the host are ignored, except a word like `slots=4`.

    Raises HostError.
    """
    host_lines = []
    for line_number, line_text in enumerate(text.splitlines(), 1):
        words = line_text.partition("#")[0].split()
        if words:
            line = _parse_line(line_number, words[0], source)
            host_lines.append(replace(line, slots=_parse_slots(line_number, words[1:], source)))
    return host_lines


def _parse_slots(line_number: int, words: Sequence[str], source: str) -> int | None:
    slot_values = [word.partition("=")[2] for word in words if word.startswith("slots=")]
    if slot_values and not (
        slot_values[0].isascii() and slot_values[0].isdecimal() and 0 < int(slot_values[0]) <= MOST_SLOTS
    ):
        raise HostError(f"{source}, line {line_number}: slots={slot_values[0]}: write a number from 1 to {MOST_SLOTS}")
    return int(slot_values[0]) if slot_values else None


def _parse_line(line_number: int, word: str, source: str) -> HostLine:
    user, at_sign, host_and_port = word.rpartition("@")
    host, colon, port = host_and_port.rpartition(":")
    if host_and_port.startswith("[") and host_and_port.endswith("]"):
        return HostLine(line_number, user + at_sign + host_and_port[1:-1])
    if not colon or (":" in host and not host.startswith("[")):
        return HostLine(line_number, word)  # no port, or an IPv6 address
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise HostError(f"{source}, line {line_number}: {word!r} has no port after its colon; write HOST or HOST:PORT")
    return HostLine(line_number, user + at_sign + host.strip("[]"), int(port))


def read_lines(file: Path) -> list[HostLine]:
    """Read and parse a host file. Raises HostError."""
    try:
        text = decode_text(file.read_bytes())
    except OSError as error:
        raise HostError(f"host file {file}: {error.strerror}") from error
    except ValueError as error:
        raise HostError(f"host file {file} is no text in UTF-8 or UTF-16 ({error}): save it as UTF-8") from error
    return lines_of(text, f"host file {file}")


def address_of(name: str, *, by_ssh: bool) -> str:
    """Return the address of the host `name`.

    With `by_ssh`, the HostName that ssh's settings give for the name is looked up. Raises OSError or ValueError if the
    address cannot be found.
    """
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(name))
    if not name.strip("0123456789."):  # an incomplete address, which the resolver would complete
        raise ValueError(f"{name} is no address")
    return socket.gethostbyname(_ssh_hostname(name) if by_ssh else name)


def _ssh_hostname(name: str) -> str:
    """Return the HostName that ssh's settings give for `name`, or `name` if ssh or the setting is missing."""
    if shutil.which("ssh") is None or name.startswith("-"):
        return name
    ssh_result = subprocess.run(
        ["ssh", "-G", "--", name],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LOOK_UP_SECONDS,
        check=False,
    )
    settings = dict(line.split(" ", 1) for line in ssh_result.stdout.splitlines() if " " in line)
    return settings.get("hostname", name)


def resolve_hosts(lines: Sequence[HostLine], source: str, look_up: Callable[[str], str]) -> list[Host]:
    """Look up the address of each line's host, in order. Raises HostError for an unknown name."""
    resolved_hosts = []
    for line in lines:
        try:
            resolved_hosts.append(Host(look_up(line.name), line))
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            reason = getattr(error, "strerror", None) or "the name is unknown"
            raise HostError(
                f"{source}, line {line.number}: {line.name!r} cannot be looked up: {reason}; write its address"
            ) from error
    return resolved_hosts


def reachable_address(address: str, job_addresses: Sequence[str]) -> str:
    """Replace a loopback address by this machine's address on the route to the job's other hosts, if there are any.

    Other hosts cannot reach this machine at a loopback address. Raises OSError.
    """
    remote_addresses = [job_address for job_address in job_addresses if not is_loopback(job_address)]
    return address_towards(remote_addresses[0]) if remote_addresses and is_loopback(address) else address


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def address_towards(address: str) -> str:
    """Return the address from which this machine would send to `address`. No packet is sent. Raises OSError."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe_socket:
        probe_socket.connect((address, 9))
        return str(probe_socket.getsockname()[0])


def is_local_address(address: str) -> bool:
    """Whether `address` is an address of this machine."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe_socket:
            probe_socket.bind((address, 0))
    except OSError:
        return False
    return True
