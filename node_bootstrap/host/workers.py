"""Files that list the cluster's nodes, for the commands and the `ssh` of people.

The file `DEEPLEARNING_WORKERS_PATH` has one address a line. The master's address is the last.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path

from dyntrain.node_bootstrap.host.files import write_atomically
from dyntrain.node_bootstrap.host.layout import Layout

SSH_HEAD = """\
# Written by dyntrain. ssh accepts a node's key at the first connection, and refuses a changed key.
"""


def hosts_with(existing: str, private_ip: str) -> list[str]:
    """The addresses of a workers file and of this host; other lines are dropped."""
    return addresses([*existing.splitlines(), private_ip])


def addresses(lines: Iterable[str]) -> list[str]:
    """The valid addresses without duplicates: shells and ssh read the files that contain them."""
    hosts: list[str] = []
    for line in lines:
        host = line.strip()
        if _is_address(host) and host not in hosts:
            hosts.append(host)
    return hosts


def workers_text(hosts: Iterable[str]) -> str:
    """Content of the workers file."""
    return "".join(f"{host}\n" for host in hosts)


def ssh_text(hosts: Iterable[str]) -> str:
    """Content of ssh's configuration: a block per host, since a line has a length limit.

    With `ssh -A` a person can continue from node to node with the same agent.
    """
    block = "    StrictHostKeyChecking accept-new\n    ForwardAgent yes\n"
    return SSH_HEAD + "".join(f"Host {host}\n{block}" for host in hosts)


def write_workers(layout: Layout, lines: Iterable[str]) -> None:
    """Write the coordinator's list of nodes if it has changed. Raises OSError."""
    hosts = addresses(lines)
    for path, text in ((layout.workers, workers_text(hosts)), (layout.ssh_config, ssh_text(hosts))):
        if _content(path) != text:
            write_atomically(path, text)


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text  # an IPv6 address's zone may be any text
