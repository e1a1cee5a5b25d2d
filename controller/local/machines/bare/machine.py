"""A bare machine: its boot process, its metadata service at EC2's address, and the folder of its disk."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dyntrain.controller.local.machines.bare import boot, host
from dyntrain.controller.local.machines.bare.stand_ins import DOWNLOADS
from dyntrain.controller.local.machines.imds import MetadataService, Tree
from dyntrain.controller.local.machines.machine import Machine, Place
from dyntrain.controller.local.machines.namespaces import Namespaces
from dyntrain.controller.local.spawner import Spawner

METADATA = ("169.254.169.254", 80)

DISK_VARIABLE = "DYNTRAIN_BARE_DISK"  # an environment variable of all processes of one machine


@dataclass(frozen=True)
class MachineResources:
    """The resources of a bare machine. `image` is the shared root, and `shared` the folder behind the emulated EFS file
    system.
    """

    image: Path
    shared: Path
    network: Namespaces
    instance_id: str


class BareMachine(Machine):
    """One boot of a bare machine, as EC2 sees it. A reboot by systemd stays within this boot."""

    def __init__(
        self,
        spawner: Spawner,
        root: Path,
        endpoint: str,
        stop_seconds: float,
        metadata: Callable[[], Tree],
        place: Place,
        resources: MachineResources,
    ) -> None:
        super().__init__(spawner, root, (), endpoint, stop_seconds, metadata, place)
        self._resources = resources
        self._imds = MetadataService(metadata, listen=self._listen, tokens_required=place.tokens_required)

    def _listen(self) -> socket.socket:
        return self._resources.network.service(self._resources.instance_id, *METADATA)

    def start(self) -> None:
        """Boot the machine. Raises OSError when no descriptors, ports or processes are left."""
        boot.sweep()
        self._imds.start()
        resources = self._resources
        settings, downloads = self.root / "host.conf", resources.image.parent / "pip"
        for folder in (self.root, downloads):
            folder.mkdir(parents=True, exist_ok=True)
        host_variables = host.variables(os.environ, f"{self._place.services},{METADATA[0]}")
        host_variables |= {"AWS_ENDPOINT_URL": self._endpoint, "PIP_CACHE_DIR": DOWNLOADS, "OMP_NUM_THREADS": "1"}
        settings.touch(mode=0o600)  # an index's address may have a password in it
        settings.write_text(host.unit_environment(host_variables), encoding="utf-8")
        options = {
            "parent": os.getpid(),
            "image": resources.image,
            "disk": self.root / "disk",
            "shared": resources.shared,
            "downloads": downloads,
            "settings": settings,
            "name": resources.instance_id,
            "network": f"/run/netns/{resources.network.link(resources.instance_id)}",
            "stop-seconds": self._stop_seconds,
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        words += [f"--lend={path}" for path in host.files(os.environ)]
        mark = {DISK_VARIABLE: str(self.root)}
        self._power_up(
            ("unshare", "--mount", sys.executable, "-m", boot.__name__, *words),
            {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ} | mark,
            f"{DISK_VARIABLE}={self.root}",
        )
