"""Files that list hosts, as people have them: a host a line, by address or by a name of DNS or of `~/.ssh/config`, with
`slots=`, an ssh port, comments, in UTF-8 or UTF-16, with or without a BOM.

A host is known to the job by its address, which all the others reach; ssh is given the name as it is written, so that
the person's own settings for it count.
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

UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
LOOK_UP_SECONDS = 10.0  # for ssh to read its settings


class HostError(ValueError):
    """Says which line of which file is wrong, and what to write."""


@dataclass(frozen=True)
class Line:
    """`host` as it is written, without the port of ssh. `slots`: how many workers it is meant for; None: not said."""

    number: int
    host: str
    port: int | None = None
    slots: int | None = None

    @property
    def name(self) -> str:
        """Without the user that ssh logs in as."""
        return self.host.rpartition("@")[2]


@dataclass(frozen=True)
class Host:
    """`address`: at which the job's other hosts reach it. `line` is what ssh is given."""

    address: str
    line: Line

    @property
    def destination(self) -> tuple[str, ...]:
        """Arguments of ssh, in front of the command."""
        port = () if self.line.port is None else ("-p", str(self.line.port))
        return (*port, "--", self.line.host)


def decoded(raw: bytes) -> str:
    """Text as editors and shells of every system write it. Raises ValueError."""
    text = raw.decode("utf-16" if raw.startswith(UTF16) else "utf-8-sig")
    if "\0" in text:
        raise ValueError("holds zero bytes")
    return text


def lines_of(text: str, source: str) -> list[Line]:
    """Of what follows a host on its line `slots=4` counts, and nothing else. Raises HostError."""
    lines = []
    for number, content in enumerate(text.splitlines(), 1):
        words = content.partition("#")[0].split()
        if words:
            line = _line(number, words[0], source)
            lines.append(replace(line, slots=_slots(number, words[1:], source)))
    return lines


def _slots(number: int, words: Sequence[str], source: str) -> int | None:
    said = [word.partition("=")[2] for word in words if word.startswith("slots=")]
    if said and not (said[0].isascii() and said[0].isdecimal() and 0 < int(said[0]) <= MOST_SLOTS):
        raise HostError(f"{source}, line {number}: slots={said[0]}: write a number from 1 to {MOST_SLOTS}")
    return int(said[0]) if said else None


def _line(number: int, word: str, source: str) -> Line:
    user, at, place = word.rpartition("@")
    host, colon, port = place.rpartition(":")
    if place.startswith("[") and place.endswith("]"):
        return Line(number, user + at + place[1:-1])
    if not colon or (":" in host and not host.startswith("[")):
        return Line(number, word)  # no port, or an address of IPv6
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise HostError(f"{source}, line {number}: {word!r} has no port behind its colon; write HOST or HOST:PORT")
    return Line(number, user + at + host.strip("[]"), int(port))


def read_lines(file: Path) -> list[Line]:
    """Raises HostError."""
    try:
        text = decoded(file.read_bytes())
    except OSError as error:
        raise HostError(f"host file {file}: {error.strerror}") from error
    except ValueError as error:
        raise HostError(f"host file {file} is no text in UTF-8 or UTF-16 ({error}): save it as UTF-8") from error
    return lines_of(text, f"host file {file}")


def address_of(name: str, *, by_ssh: bool) -> str:
    """`by_ssh`: what ssh's settings say of the name comes first, as it is there that ssh goes. Raises OSError or
    ValueError.
    """
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(name))
    if not name.strip("0123456789."):  # half an address, which the resolver would fill up
        raise ValueError(f"{name} is no address")
    return socket.gethostbyname(_of_ssh(name) if by_ssh else name)


def _of_ssh(name: str) -> str:
    """The HostName of ssh's settings; the name itself where they say nothing, or ssh is not here."""
    if shutil.which("ssh") is None or name.startswith("-"):
        return name
    done = subprocess.run(
        ["ssh", "-G", "--", name],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LOOK_UP_SECONDS,
        check=False,
    )
    known = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    return known.get("hostname", name)


def resolved(lines: Sequence[Line], source: str, look_up: Callable[[str], str]) -> list[Host]:
    """In their order. Raises HostError for a name that is nobody's."""
    hosts = []
    for line in lines:
        try:
            hosts.append(Host(look_up(line.name), line))
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            why = getattr(error, "strerror", None) or "it is no name of a host"
            raise HostError(
                f"{source}, line {line.number}: {line.name!r} cannot be looked up: {why}; write its address"
            ) from error
    return hosts


def as_reached(address: str, others: Sequence[str]) -> str:
    """A loopback address means another machine on each, so beside other hosts it is that by which this machine reaches
    them. Raises OSError.
    """
    far = [other for other in others if not is_loopback(other)]
    return address_towards(far[0]) if far and is_loopback(address) else address


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def address_towards(address: str) -> str:
    """This machine's own, on the way there; nothing is sent. Raises OSError."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0])


def is_here(address: str) -> bool:
    """Whether it is one of this machine's."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
