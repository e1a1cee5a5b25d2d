"""The environment that scripts and training commands expect, and the files that carry it to people's shells."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Mapping
from pathlib import Path

from controller.contract import NodeConfig, elastic_tag
from node_bootstrap.files import write_atomically
from node_bootstrap.identity import Identity
from node_bootstrap.layout import Layout

TEMPLATE_TAG = "aws:ec2launchtemplate:id"  # EC2 sets it on whatever was launched from a template


def hosts_with(existing: str, private_ip: str) -> list[str]:
    """The hosts of a workers file, one address a line; lines that are no address are dropped, this host is added when it is missing."""
    hosts: list[str] = []
    for line in [*existing.splitlines(), private_ip]:
        host = line.strip()
        if _is_address(host) and host not in hosts:
            hosts.append(host)
    return hosts


def variables(identity: Identity, config: NodeConfig, workers: Path, gpus: int) -> dict[str, str]:
    """What contract tells users to rely on. `config.environment` has the last word."""
    return {
        "DEEPLEARNING_WORKERS_PATH": str(workers),
        "DEEPLEARNING_WORKERS_COUNT": str(config.workers),
        "DEEPLEARNING_WORKER_GPU_COUNT": str(gpus),
        "EFS_MOUNT": config.mount,
        "AWS_REGION": identity.region,
        "ELASTIC_WORKER_TAG": elastic_tag(identity.cluster),
        "WORKER_LAUNCH_TEMPLATE_ID": identity.tags.get(TEMPLATE_TAG, ""),
        "TRAINING_CMD": shlex.join(config.training_cmd),
        **config.environment,
    }


def profile(values: Mapping[str, str]) -> str:
    """A shell fragment that any POSIX shell can source, whatever is in the values."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(values.items()))


def environment_files(layout: Layout, identity: Identity, config: NodeConfig, gpus: int) -> dict[Path, str]:
    """What the profile and the workers file should hold, given the hosts that are in the latter already. Raises OSError."""
    hosts = hosts_with(_content(layout.workers) or "", identity.private_ip)
    return {
        layout.workers: "".join(f"{host}\n" for host in hosts),
        layout.profile: profile(variables(identity, config, layout.workers, gpus)),
    }


def environment_stands(files: Mapping[Path, str]) -> bool:
    """Whether the files hold that. Raises OSError."""
    return all(_content(path) == text for path, text in files.items())


def write_environment(files: Mapping[Path, str]) -> None:
    """Raises OSError."""
    for path, text in files.items():
        write_atomically(path, text)


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
