"""Which nodes the cluster has, in the files that people's commands read: `DEEPLEARNING_WORKERS_PATH`, one address a
line with the master's last, and what lets their `ssh` go there.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path

from dyntrain.node_bootstrap.host.files import write_atomically
from dyntrain.node_bootstrap.host.layout import Layout

SSH_HEAD = """\
# Written by dyntrain. The keys of this cluster's nodes are taken when they are first met; a changed one is refused.
"""


def hosts_with(existing: str, private_ip: str) -> list[str]:
    """The hosts of a workers file, one address a line; lines that are no address are dropped, this host is added when
    it is missing.
    """
    return addresses([*existing.splitlines(), private_ip])


def addresses(lines: Iterable[str]) -> list[str]:
    """Each once, without what is none: it goes into files that shells and ssh read."""
    hosts: list[str] = []
    for line in lines:
        host = line.strip()
        if _is_address(host) and host not in hosts:
            hosts.append(host)
    return hosts


def workers_text(hosts: Iterable[str]) -> str:
    return "".join(f"{host}\n" for host in hosts)


def ssh_text(hosts: Iterable[str]) -> str:
    """One block a host: a line of ssh's files has a bound. Who came with `ssh -A` goes on from node to node with the
    same agent.
    """
    block = "    StrictHostKeyChecking accept-new\n    ForwardAgent yes\n"
    return SSH_HEAD + "".join(f"Host {host}\n{block}" for host in hosts)


def write_workers(layout: Layout, told: Iterable[str]) -> None:
    """What the coordinator told, once it differs. Raises OSError."""
    hosts = addresses(told)
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
