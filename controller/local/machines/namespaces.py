"""Emulate hosts by network namespaces: each machine has an IP address and a network link of its own, and the link can
be cut or slowed. Network namespaces need Linux, root and iproute2.

A bridge on this host connects the machines. The cloud's endpoint and the metadata services listen on the bridge's
address. The name of each namespace and link contains the process id of its owner. With the process id in the name, a
later process can find and remove the namespaces of a killed process.
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

NETWORK_COUNT = 512  # /24 networks in 198.18.0.0/15, which RFC 2544 reserves for tests: no real host is there
COMMAND_SECONDS = 20.0  # limit for a command such as ip
TOKEN_BUCKET_OPTIONS = ("burst", "256kb", "latency", "50ms")  # options of the filter that slows a link
LOCK_FILE = "/run/dyntrain-networks.lock"  # held for milliseconds, and freed by the kernel when its owner dies
CLONE_NEWNET = 0x40000000  # of sched.h; Python has os.setns from 3.12 on
OWNED_NAME = re.compile(r"dt([0-9a-f]+)-[0-9a-f]+(v\d+)?$")  # an interface's name has 15 characters at most
_network_numbers = itertools.count()


class NamespacesUnavailable(LocalCloudError):
    """Raised when this host or user cannot create network namespaces."""


def namespaces_available() -> bool:
    """Whether this user can probably create network namespaces on this host."""
    return os.geteuid() == 0 and shutil.which("ip") is not None


class Namespaces:
    """A network of emulated hosts, each of which is a network namespace. Any thread may call the methods of
    `Namespaces`. `stop` removes all hosts and the bridge, and may be called again.
    """

    def __init__(self) -> None:
        self.name = f"dt{os.getpid():x}-{next(_network_numbers):x}"
        self._prefix = ""
        self._links: dict[str, str] = {}
        self._link_numbers = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def gateway(self) -> str:
        """The bridge's address, which is this host's address in the network."""
        return f"{self._prefix}.1"

    @property
    def addresses(self) -> list[str]:
        """The IP addresses that hosts of the network can have."""
        return [f"{self._prefix}.{host_number}" for host_number in range(2, 255)]

    def start(self) -> None:
        """Create the network's bridge. Raises NamespacesUnavailable."""
        if not namespaces_available():
            raise NamespacesUnavailable("network namespaces need root and the program `ip` (package iproute2)")
        remove_abandoned_networks()
        try:
            with _network_lock():
                self._prefix = _free_prefix(os.getpid())
                _run_ip(
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
            _run_ip(f"link delete dev {self.name}")

    @property
    def hosts(self) -> list[str]:
        return list(self._links)

    def command_prefix(self, host: str, address: str) -> tuple[str, ...]:
        """The words that are put before a command to run the command on the host. If the host does not exist, this
        method creates the host. Raises NamespacesUnavailable.
        """
        with self._lock:
            link_name = self._links.get(host)
            if link_name is None:
                link_name = f"{self.name}v{next(self._link_numbers)}"
                self._create_host(link_name, address)
                self._links[host] = link_name
        return ("ip", "netns", "exec", link_name)

    def _create_host(self, link_name: str, address: str) -> None:
        """Create the host's namespace and link. After an error, neither the namespace nor the link is left."""
        commands_in_namespace = (
            "link set dev lo up",
            f"address add {address}/24 dev eth0",
            "link set dev eth0 up",
            f"route add default via {self.gateway}",
        )
        try:
            _run_ip(f"netns add {link_name}")
            _run_ip(
                f"link add name {link_name} type veth peer name eth0 netns {link_name}",
                f"link set dev {link_name} master {self.name} up",
            )
            _run_ip(*commands_in_namespace, namespace=link_name)
        except NamespacesUnavailable:
            _remove_link_and_namespace(link_name)
            raise

    def remove(self, host: str) -> None:
        """Remove the host, if it exists. The host's processes must have ended, because a network namespace exists until
        the last process in the namespace has ended.
        """
        with self._lock:
            link_name = self._links.pop(host, None)
        if link_name is not None:
            _remove_link_and_namespace(link_name)

    def listen_on_host(self, host: str, address: str, port: int) -> socket.socket:
        """A socket of this process that listens at an address that only the host can reach, such as the metadata
        service's address. The host's default route is removed, because a bare machine gets another route. Raises
        NamespacesUnavailable or OSError if the host or the address cannot be used.
        """
        link_name = self._links[host]
        with contextlib.suppress(NamespacesUnavailable):  # an earlier boot has set this address
            _run_ip(f"address add {address}/32 dev lo", "route del default", namespace=link_name)
        with ThreadPoolExecutor(1) as listening_thread:  # the thread enters the namespace, and ends there
            return listening_thread.submit(_listen_inside, f"/run/netns/{link_name}", address, port).result(
                COMMAND_SECONDS
            )

    def link_of(self, host: str) -> str | None:
        """The name of the host's network link on the bridge, or None if the host does not exist."""
        return self._links.get(host)

    def cut_link(self, host: str) -> bool:
        """Cut the host's network link, so that packets are lost in both directions without an error. Returns False if
        the host does not exist.
        """
        return self._set_link_state(host, "down")

    def mend_link(self, host: str) -> bool:
        return self._set_link_state(host, "up")

    def _set_link_state(self, host: str, state: str) -> bool:
        link_name = self._links.get(host)
        if link_name is not None:
            with contextlib.suppress(NamespacesUnavailable):  # the host was removed meanwhile
                _run_ip(f"link set dev {link_name} {state}")
                return True
        return False

    def slow_link(self, host: str, megabits: float) -> bool:
        """Limit the host's network link to `megabits` a second. Returns False if the host does not exist."""
        link_name = self._links.get(host)
        if link_name is None:
            return False
        tc_results = [
            _run_tc(
                namespace, "replace", "dev", device, "root", "tbf", "rate", f"{megabits:g}mbit", *TOKEN_BUCKET_OPTIONS
            )
            for namespace, device in ((None, link_name), (link_name, "eth0"))
        ]
        if not all(tc_results):  # the host is being removed
            self.speed_up_link(host)
        return all(tc_results)

    def speed_up_link(self, host: str) -> bool:
        link_name = self._links.get(host)
        if link_name is None:
            return False
        tc_results = [
            _run_tc(namespace, "delete", "dev", device, "root")
            for namespace, device in ((None, link_name), (link_name, "eth0"))
        ]
        return all(tc_results)


def remove_abandoned_networks() -> list[str]:
    """Remove the network namespaces and links of processes that have ended. Returns the names of the removed namespaces
    and links.
    """
    removed_names = []
    for name in sorted(_entry_names("/run/netns") | _entry_names("/sys/class/net")):
        owner_match = OWNED_NAME.match(name)
        if owner_match and ended(int(owner_match[1], 16)):
            _remove_link_and_namespace(name)
            removed_names.append(name)
    return removed_names


def _listen_inside(namespace: str, address: str, port: int) -> socket.socket:
    """Let the calling thread enter the network namespace, and return a socket that listens in the namespace. The
    calling thread must end after this call, because a thread cannot leave the namespace.
    """
    with open(namespace, "rb") as namespace_file:
        if ctypes.CDLL(None, use_errno=True).setns(namespace_file.fileno(), CLONE_NEWNET):
            error_number = ctypes.get_errno()
            raise OSError(error_number, f"{namespace}: {os.strerror(error_number)}")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(64)
    except OSError:
        listener.close()
        raise
    return listener


def _entry_names(folder: str) -> set[str]:
    with contextlib.suppress(FileNotFoundError):
        return set(os.listdir(folder))
    return set()


def _remove_link_and_namespace(name: str) -> None:
    """Remove a host's link, then its namespace. The link disappears at once, but the namespace exists until its last
    process and socket have ended.
    """
    for argv in (["link", "delete", "dev", name], ["netns", "delete", name]):
        subprocess.run(["ip", *argv], capture_output=True, timeout=COMMAND_SECONDS, check=False)


@contextlib.contextmanager
def _network_lock() -> Iterator[None]:
    """Hold this host's lock for networks while this process looks for a free network and creates a bridge in the
    network. Without the lock, two bridges could have the same address, and packets would go to the wrong bridge.
    """
    with open(LOCK_FILE, "w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield


def _free_prefix(first_number: int) -> str:
    """The first three numbers of a /24 network, such as "198.18.0", in which this host has no address."""
    process = subprocess.run(
        ["ip", "-json", "address"], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )
    used_prefixes = {
        ".".join(address["local"].split(".")[:3])
        for interface in json.loads(process.stdout or "[]")
        for address in interface.get("addr_info", [])
    }
    for network_offset in range(NETWORK_COUNT):
        network_number = (first_number + network_offset) % NETWORK_COUNT
        prefix = f"198.{18 + network_number // 256}.{network_number % 256}"
        if prefix not in used_prefixes:
            return prefix
    raise NamespacesUnavailable("all networks in 198.18.0.0/15 are taken by interfaces of this host")


def _run_tc(namespace: str | None, *command: str) -> bool:
    """Change the traffic control of a network link with `tc`. Returns False if the link no longer exists, or if this
    host is too busy.
    """
    namespace_options = [] if namespace is None else ["-n", namespace]
    argv = ["tc", *namespace_options, "qdisc", *command]
    try:
        return subprocess.run(argv, capture_output=True, timeout=COMMAND_SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _run_ip(*commands: str, namespace: str | None = None) -> None:
    """Run commands of the program `ip` until a command fails. Raises NamespacesUnavailable with the output of `ip`."""
    namespace_options = [] if namespace is None else ["-netns", namespace]
    argv = ["ip", *namespace_options, "-batch", "-"]
    process = subprocess.run(
        argv, input="\n".join(commands) + "\n", capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )
    if process.returncode:
        raise NamespacesUnavailable(
            f"`{' '.join(argv)}` failed ({'; '.join(commands)}): {' '.join(process.stderr.split())}"
        )
