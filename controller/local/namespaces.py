"""Hosts as network namespaces: each machine has an address and a link of its own, and a link can be cut. Linux, root and iproute2 only.

A bridge on this host stands for the network; the cloud's endpoint and the metadata services listen on its address. Names begin with the
id of the process that owns them, so that what a killed owner left is known, and swept by the next one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

from controller.local.errors import LocalCloudError

NETWORKS = 512  # /24 networks in 198.18.0.0/15, which RFC 2544 sets aside for tests: no route of a real host leads there
COMMAND_SECONDS = 20.0
OWNED = re.compile(r"dt([0-9a-f]+)-[0-9a-f]+(v\d+)?$")  # an interface's name has 15 characters at most
_numbers = itertools.count()


class NamespacesUnavailable(LocalCloudError):
    """This host or user cannot make network namespaces."""


def available() -> bool:
    """Whether this user on this host may be expected to make namespaces."""
    return os.geteuid() == 0 and shutil.which("ip") is not None


class Namespaces:
    """One network of hosts. Methods may be called from any thread; `stop` removes everything, and may be called twice."""

    def __init__(self) -> None:
        self.name = f"dt{os.getpid():x}-{next(_numbers):x}"
        self._prefix = ""
        self._links: dict[str, str] = {}
        self._made = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def gateway(self) -> str:
        """This host's address in the network."""
        return f"{self._prefix}.1"

    @property
    def addresses(self) -> list[str]:
        """Of the hosts."""
        return [f"{self._prefix}.{host}" for host in range(2, 255)]

    def start(self) -> None:
        """Raises NamespacesUnavailable."""
        if not available():
            raise NamespacesUnavailable("network namespaces need root and the program `ip` (package iproute2)")
        sweep()
        self._prefix = _free_prefix(os.getpid())
        try:
            _ip(f"link add name {self.name} type bridge", f"address add {self.gateway}/24 dev {self.name}", f"link set dev {self.name} up")
        except NamespacesUnavailable:
            self.stop()
            raise

    def stop(self) -> None:
        for host in list(self._links):
            self.remove(host)
        if (Path("/sys/class/net") / self.name).exists():
            _ip(f"link delete dev {self.name}")

    @property
    def hosts(self) -> list[str]:
        return list(self._links)

    def entrance(self, host: str, address: str) -> tuple[str, ...]:
        """What is put before a command to run it on the host, which is made when it is new. Raises NamespacesUnavailable."""
        with self._lock:
            link = self._links.get(host)
            if link is None:
                link = f"{self.name}v{next(self._made)}"
                self._make(link, address)
                self._links[host] = link
        return ("ip", "netns", "exec", link)

    def _make(self, link: str, address: str) -> None:
        """All of it or nothing."""
        inner = ("link set dev lo up", f"address add {address}/24 dev eth0", "link set dev eth0 up", f"route add default via {self.gateway}")
        try:
            _ip(f"netns add {link}")
            _ip(f"link add name {link} type veth peer name eth0 netns {link}", f"link set dev {link} master {self.name} up")
            _ip(*inner, inside=link)
        except NamespacesUnavailable:
            _remove(link)
            raise

    def remove(self, host: str) -> None:
        """The host's processes must have ended: a namespace lives as long as they do. Nothing happens for an unknown host."""
        with self._lock:
            link = self._links.pop(host, None)
        if link is not None:
            _remove(link)

    def link(self, host: str) -> str | None:
        """The name of the host's link on this side: `ip link set NAME down` cuts the host off."""
        return self._links.get(host)

    def cut(self, host: str) -> bool:
        """Nothing comes through from or to the host any more, and nobody is told. False for an unknown host."""
        return self._set(host, "down")

    def mend(self, host: str) -> bool:
        return self._set(host, "up")

    def _set(self, host: str, state: str) -> bool:
        link = self._links.get(host)
        if link is not None:
            with contextlib.suppress(NamespacesUnavailable):  # the host was removed meanwhile
                _ip(f"link set dev {link} {state}")
                return True
        return False


def sweep() -> list[str]:
    """Removes what owners that are gone have left; returns the names."""
    left = []
    for name in sorted(_names("/run/netns") | _names("/sys/class/net")):
        owned = OWNED.match(name)
        if owned and not Path(f"/proc/{int(owned[1], 16)}").exists():
            _remove(name)
            left.append(name)
    return left


def _names(folder: str) -> set[str]:
    with contextlib.suppress(FileNotFoundError):
        return set(os.listdir(folder))
    return set()


def _remove(name: str) -> None:
    """The link first: it ends at once, while a namespace stays until its last process and socket are gone."""
    for argv in (["link", "delete", "dev", name], ["netns", "delete", name]):
        subprocess.run(["ip", *argv], capture_output=True, timeout=COMMAND_SECONDS, check=False)


def _free_prefix(start: int) -> str:
    """The first three bytes of a network that no interface of this host has."""
    answer = subprocess.run(["ip", "-json", "address"], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    used = {".".join(one["local"].split(".")[:3]) for link in json.loads(answer.stdout or "[]") for one in link.get("addr_info", [])}
    for number in range(NETWORKS):
        block = (start + number) % NETWORKS
        prefix = f"198.{18 + block // 256}.{block % 256}"
        if prefix not in used:
            return prefix
    raise NamespacesUnavailable("all networks in 198.18.0.0/15 are taken by interfaces of this host")


def _ip(*commands: str, inside: str | None = None) -> None:
    """Raises NamespacesUnavailable with what `ip` said. Stops at the first command that fails."""
    where = [] if inside is None else ["-netns", inside]
    argv = ["ip", *where, "-batch", "-"]
    done = subprocess.run(argv, input="\n".join(commands) + "\n", capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    if done.returncode:
        raise NamespacesUnavailable(f"{' '.join(argv)} ({'; '.join(commands)}): {' '.join(done.stderr.split())}")
