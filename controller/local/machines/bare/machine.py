"""A bare machine: its boot process, its metadata service at the address that EC2 uses, and the folder of its disk."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dyntrain.controller.local.machines.bare import boot, host
from dyntrain.controller.local.machines.bare.stand_ins import DOWNLOAD_FOLDER
from dyntrain.controller.local.machines.imds import MetadataService, MetadataTree
from dyntrain.controller.local.machines.machine import Machine, MachinePlace
from dyntrain.controller.local.machines.namespaces import Namespaces
from dyntrain.controller.local.spawner import Spawner

METADATA_ADDRESS = ("169.254.169.254", 80)

DISK_VARIABLE = "DYNTRAIN_BARE_DISK"  # an environment variable of all processes of one machine


@dataclass(frozen=True)
class MachineResources:
    """The root file system, shared folder and network that a bare machine uses."""

    image: Path  # the root file system that all bare machines share
    shared: Path  # the folder that stands for the EFS file system
    network: Namespaces
    instance_id: str


class BareMachine(Machine):
    """One boot of a bare machine, from power-on to power-off. A reboot by the machine's systemd is part of the same
    boot, because EC2 would not notice the reboot.
    """

    def __init__(
        self,
        spawner: Spawner,
        root: Path,
        endpoint: str,
        stop_seconds: float,
        metadata: Callable[[], MetadataTree],
        place: MachinePlace,
        resources: MachineResources,
    ) -> None:
        super().__init__(spawner, root, (), endpoint, stop_seconds, metadata, place)
        self._resources = resources
        self._imds = MetadataService(metadata, listen=self._listen_for_metadata, tokens_required=place.tokens_required)

    def _listen_for_metadata(self) -> socket.socket:
        return self._resources.network.listen_on_host(self._resources.instance_id, *METADATA_ADDRESS)

    def start(self) -> None:
        """Boot the machine. Raises OSError when this host has no file descriptors, ports or processes left."""
        boot.remove_abandoned_groups()
        self._imds.start()
        resources = self._resources
        settings_file, download_folder = self.root / "host.conf", resources.image.parent / "pip"
        for folder in (self.root, download_folder):
            folder.mkdir(parents=True, exist_ok=True)
        host_variables = host.network_variables(os.environ, f"{self._place.services},{METADATA_ADDRESS[0]}")
        host_variables |= {"AWS_ENDPOINT_URL": self._endpoint, "PIP_CACHE_DIR": DOWNLOAD_FOLDER, "OMP_NUM_THREADS": "1"}
        settings_file.touch(mode=0o600)  # an index's address may have a password in it
        settings_file.write_text(host.unit_environment(host_variables), encoding="utf-8")
        boot_settings = {
            "parent": os.getpid(),
            "image": resources.image,
            "disk": self.root / "disk",
            "shared": resources.shared,
            "downloads": download_folder,
            "settings": settings_file,
            "name": resources.instance_id,
            "network": f"/run/netns/{resources.network.link_of(resources.instance_id)}",
            "stop-seconds": self._stop_seconds,
        }
        boot_options = [f"--{setting_name}={setting_value}" for setting_name, setting_value in boot_settings.items()]
        boot_options += [f"--lend={path}" for path in host.lent_files(os.environ)]
        environment_mark = {DISK_VARIABLE: str(self.root)}
        self._start_init_process(
            ("unshare", "--mount", sys.executable, "-m", boot.__name__, *boot_options),
            {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
            | environment_mark,
            f"{DISK_VARIABLE}={self.root}",
        )
