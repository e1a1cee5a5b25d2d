"""Writes the files that list the cluster's nodes: the workers file, and a configuration file of `ssh`.

The path of the workers file is in the environment variable DEEPLEARNING_WORKERS_PATH. The workers file contains one
address per line; the master's address is the last.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path

from dyntrain.node_bootstrap.host.files import write_atomically
from dyntrain.node_bootstrap.host.layout import Layout

SSH_CONFIG_HEADER = """\
# Written by dyntrain. ssh accepts a node's key at the first connection, and refuses a changed key.
"""


def hosts_with(existing: str, private_ip: str) -> list[str]:
    """Return the valid addresses in `existing`, the text of a workers file, and this host's address `private_ip`."""
    return valid_addresses([*existing.splitlines(), private_ip])


def valid_addresses(lines: Iterable[str]) -> list[str]:
    """Return the lines that are IP addresses, without duplicates.

    Lines that are no IP addresses are dropped, since shells read the files to which the addresses are written.
    """
    hosts: list[str] = []
    for line in lines:
        host = line.strip()
        if _is_address(host) and host not in hosts:
            hosts.append(host)
    return hosts


def workers_text(hosts: Iterable[str]) -> str:
    """Return the content of a workers file that lists `hosts`, one per line."""
    return "".join(f"{host}\n" for host in hosts)


def ssh_text(hosts: Iterable[str]) -> str:
    """Return the content of ssh's configuration file: one block per host, since ssh limits the length of a line.

    A user who logs in with `ssh -A` can log in from node to node with the keys of the user's own ssh agent.
    """
    ssh_options = "    StrictHostKeyChecking accept-new\n    ForwardAgent yes\n"
    return SSH_CONFIG_HEADER + "".join(f"Host {host}\n{ssh_options}" for host in hosts)


def write_workers(layout: Layout, lines: Iterable[str]) -> None:
    """Write the coordinator's list of node addresses to the workers file and to ssh's configuration file.

    A file that has the right content already is not written. Raises OSError.
    """
    hosts = valid_addresses(lines)
    for path, content in ((layout.workers_file, workers_text(hosts)), (layout.ssh_config, ssh_text(hosts))):
        if _read_if_exists(path) != content:
            write_atomically(path, content)


def _read_if_exists(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text  # an IPv6 address's zone may be any text
