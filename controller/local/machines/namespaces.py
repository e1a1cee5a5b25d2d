"""Hosts as network namespaces: each machine has an address and a link of its own, and the link can be cut or slowed.
Network namespaces need Linux, root and iproute2.

A bridge on this host connects the machines. The cloud's endpoint and the metadata services listen on the bridge's
address. Each name contains the process id of the owner. Therefore the next owner can find and remove the namespaces of
a killed owner.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dyntrain.controller.local.errors import LocalCloudError
from dyntrain.training.host.parentage import ended

NETWORKS = 512  # /24 networks in 198.18.0.0/15, which RFC 2544 reserves for tests: no real host is there
COMMAND_SECONDS = 20.0
BUCKET = ("burst", "256kb", "latency", "50ms")  # options of the filter that slows a link
LOCK = "/run/dyntrain-networks.lock"  # held for milliseconds, and freed by the kernel when its owner dies
CLONE_NEWNET = 0x40000000  # of sched.h; Python has os.setns from 3.12 on
OWNED_NAME = re.compile(r"dt([0-9a-f]+)-[0-9a-f]+(v\d+)?$")  # an interface's name has 15 characters at most
_numbers = itertools.count()


class NamespacesUnavailable(LocalCloudError):
    """Raised when this host or user cannot create network namespaces."""


def available() -> bool:
    """Whether this user on this host can probably create namespaces."""
    return os.geteuid() == 0 and shutil.which("ip") is not None


class Namespaces:
    """A network of hosts. Methods may be called from any thread. `stop` removes all hosts and the bridge, and is safe
    to repeat.
    """

    def __init__(self) -> None:
        self.name = f"dt{os.getpid():x}-{next(_numbers):x}"
        self._prefix = ""
        self._links: dict[str, str] = {}
        self._link_numbers = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def gateway(self) -> str:
        """The host's own address in the network."""
        return f"{self._prefix}.1"

    @property
    def addresses(self) -> list[str]:
        """The addresses of the hosts."""
        return [f"{self._prefix}.{host}" for host in range(2, 255)]

    def start(self) -> None:
        """Create the network. Raises NamespacesUnavailable."""
        if not available():
            raise NamespacesUnavailable("network namespaces need root and the program `ip` (package iproute2)")
        sweep()
        try:
            with _network_lock():
                self._prefix = _free_prefix(os.getpid())
                _ip(
                    f"link add name {self.name} type bridge",
                    f"address add {self.gateway}/24 dev {self.name}",
                    f"link set dev {self.name} up",
                )
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
        """The prefix of a command that runs on the host. An unknown host is created first. Raises
        NamespacesUnavailable.
        """
        with self._lock:
            link = self._links.get(host)
            if link is None:
                link = f"{self.name}v{next(self._link_numbers)}"
                self._make(link, address)
                self._links[host] = link
        return ("ip", "netns", "exec", link)

    def _make(self, link: str, address: str) -> None:
        """Create the host's namespace and link. After an error, nothing of the host is left."""
        inner = (
            "link set dev lo up",
            f"address add {address}/24 dev eth0",
            "link set dev eth0 up",
            f"route add default via {self.gateway}",
        )
        try:
            _ip(f"netns add {link}")
            _ip(
                f"link add name {link} type veth peer name eth0 netns {link}",
                f"link set dev {link} master {self.name} up",
            )
            _ip(*inner, namespace=link)
        except NamespacesUnavailable:
            _remove(link)
            raise

    def remove(self, host: str) -> None:
        """Remove the host, if it exists. The host's processes must have ended, because a process keeps its namespace
        alive.
        """
        with self._lock:
            link = self._links.pop(host, None)
        if link is not None:
            _remove(link)

    def service(self, host: str, address: str, port: int) -> socket.socket:
        """A listening socket of this process at an address that only the host sees, such as the metadata service's
        address. The host's default route is removed, because a bare machine gets another route. Raises
        NamespacesUnavailable or OSError.
        """
        link = self._links[host]
        with contextlib.suppress(NamespacesUnavailable):  # an earlier boot has set this address
            _ip(f"address add {address}/32 dev lo", "route del default", namespace=link)
        with ThreadPoolExecutor(1) as thread:  # the thread enters the namespace, and ends there
            return thread.submit(_listen_inside, f"/run/netns/{link}", address, port).result(COMMAND_SECONDS)

    def link(self, host: str) -> str | None:
        """The name of the host's link on the bridge, or None for an unknown host. `ip link set NAME down` cuts the host
        off.
        """
        return self._links.get(host)

    def cut(self, host: str) -> bool:
        """Cut the host's link silently: packets are lost in both directions. Returns False for an unknown host."""
        return self._set_link_state(host, "down")

    def mend(self, host: str) -> bool:
        return self._set_link_state(host, "up")

    def _set_link_state(self, host: str, state: str) -> bool:
        link = self._links.get(host)
        if link is not None:
            with contextlib.suppress(NamespacesUnavailable):  # the host was removed meanwhile
                _ip(f"link set dev {link} {state}")
                return True
        return False

    def slow(self, host: str, megabits: float) -> bool:
        """Limit the host's link to `megabits` a second. Returns False if the host does not exist."""
        link = self._links.get(host)
        if link is None:
            return False
        results = [
            _tc(namespace, "replace", "dev", device, "root", "tbf", "rate", f"{megabits:g}mbit", *BUCKET)
            for namespace, device in ((None, link), (link, "eth0"))
        ]
        if not all(results):  # the host is being removed
            self.speed_up(host)
        return all(results)

    def speed_up(self, host: str) -> bool:
        link = self._links.get(host)
        if link is None:
            return False
        results = [
            _tc(namespace, "delete", "dev", device, "root") for namespace, device in ((None, link), (link, "eth0"))
        ]
        return all(results)


def sweep() -> list[str]:
    """Remove namespaces and links of owners that have ended; returns the names."""
    removed = []
    for name in sorted(_names("/run/netns") | _names("/sys/class/net")):
        owner_match = OWNED_NAME.match(name)
        if owner_match and ended(int(owner_match[1], 16)):
            _remove(name)
            removed.append(name)
    return removed


def _listen_inside(namespace: str, address: str, port: int) -> socket.socket:
    """Let the calling thread enter the namespace, and listen there. The thread must end afterwards."""
    with open(namespace, "rb") as entry:
        if ctypes.CDLL(None, use_errno=True).setns(entry.fileno(), CLONE_NEWNET):
            code = ctypes.get_errno()
            raise OSError(code, f"{namespace}: {os.strerror(code)}")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(64)
    except OSError:
        listener.close()
        raise
    return listener


def _names(folder: str) -> set[str]:
    with contextlib.suppress(FileNotFoundError):
        return set(os.listdir(folder))
    return set()


def _remove(name: str) -> None:
    """Remove the link, then the namespace. The link ends at once, but a namespace stays until its last process and
    socket are gone.
    """
    for argv in (["link", "delete", "dev", name], ["netns", "delete", name]):
        subprocess.run(["ip", *argv], capture_output=True, timeout=COMMAND_SECONDS, check=False)


@contextlib.contextmanager
def _network_lock() -> Iterator[None]:
    """A lock of this host for a process that looks for a free network and takes it. The kernel lets two bridges have
    the same address, and packets would then go to the wrong bridge.
    """
    with open(LOCK, "w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield


def _free_prefix(start: int) -> str:
    """The first three bytes of a network that no interface of this host has."""
    answer = subprocess.run(
        ["ip", "-json", "address"], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )
    used = {
        ".".join(address["local"].split(".")[:3])
        for link in json.loads(answer.stdout or "[]")
        for address in link.get("addr_info", [])
    }
    for number in range(NETWORKS):
        block = (start + number) % NETWORKS
        prefix = f"198.{18 + block // 256}.{block % 256}"
        if prefix not in used:
            return prefix
    raise NamespacesUnavailable("all networks in 198.18.0.0/15 are taken by interfaces of this host")


def _tc(namespace: str | None, *command: str) -> bool:
    """Set traffic control with `tc`. Returns False if the link no longer exists, or if the host is too busy."""
    namespace_options = [] if namespace is None else ["-n", namespace]
    argv = ["tc", *namespace_options, "qdisc", *command]
    try:
        return subprocess.run(argv, capture_output=True, timeout=COMMAND_SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _ip(*commands: str, namespace: str | None = None) -> None:
    """Run commands of `ip` until one fails. Raises NamespacesUnavailable with the output of `ip`."""
    namespace_options = [] if namespace is None else ["-netns", namespace]
    argv = ["ip", *namespace_options, "-batch", "-"]
    process = subprocess.run(
        argv, input="\n".join(commands) + "\n", capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )
    if process.returncode:
        raise NamespacesUnavailable(f"{' '.join(argv)} ({'; '.join(commands)}): {' '.join(process.stderr.split())}")
