"""Step that provides the shared volume: an existing mount, or an EFS file system that it mounts with TLS.

systemd mounts the file system from an entry in fstab. So the TLS tunnel of amazon-efs-utils outlives the bootstrap, and
the next boot mounts the file system by itself.
https://docs.aws.amazon.com/efs/latest/ug/mount-fs-auto-mount-update-fstab.html
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence

from dyntrain.node_bootstrap.core.plan import DONE, Condition, pending
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.node_bootstrap.host.files import write_atomically
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.processes import Children, Program, explain
from dyntrain.node_bootstrap.steps.discovery import ReadConfiguration
from dyntrain.node_bootstrap.steps.run import NodeStep
from dyntrain.training.timeouts import timeout

MOUNT_OPTIONS = "_netdev,noresvport,tls"
MOUNT_SECONDS = 120.0
LOOK_SECONDS = 30.0  # limit for a file system whose server does not answer
log = logging.getLogger(__name__)


def fstab_with(existing: str, volume: str, mount: str) -> str:
    """The text `existing` with one entry for `mount`. Comments and other entries are kept. Idempotent."""
    entry = f"{volume}:/ {mount} efs {MOUNT_OPTIONS} 0 0"
    lines = [line for line in existing.splitlines() if line.lstrip().startswith("#") or line.split()[1:2] != [mount]]
    return "".join(f"{line}\n" for line in [*lines, entry])


class Volume:
    """The shared volume. `volume` is an EFS file system's id; None: the folder at `mount` is used."""

    def __init__(
        self,
        volume: str | None,
        mount: str,
        layout: Layout,
        children: Children,
        systemctl: Sequence[str],
        is_mount: Callable[[str], bool],
    ) -> None:
        self._volume, self._mount, self._layout, self._children = volume, mount, layout, children
        self._systemctl, self._is_mount = systemctl, is_mount

    async def usable(self) -> bool:
        """Whether the volume can be used. Raises ServiceUnavailable if its server does not answer."""
        return await self._test_path(os.path.isdir if self._volume is None else self._is_mount)

    async def ensure_mounted(self) -> None:
        """Mount the volume if needed; on return the volume can be used.

        Raises ServiceUnavailable, also if its server does not answer, and OSError if fstab cannot be written.
        """
        if await self.usable():
            return
        if self._volume is None:
            raise ServiceUnavailable(
                f"the shared volume {self._mount} does not exist; check the mount and the field mount of the node's "
                "configuration"
            )
        fstab = self._layout.fstab
        existing = fstab.read_text(encoding="utf-8") if fstab.exists() else ""
        updated = fstab_with(existing, self._volume, self._mount)
        if updated != existing:
            write_atomically(fstab, updated)
        os.makedirs(self._mount, exist_ok=True)
        for command in (["daemon-reload"], ["start", self._mount]):
            await self._run([*self._systemctl, *command])
        if not await self.usable():
            raise ServiceUnavailable(f"{self._volume} is not mounted at {self._mount}, although systemd says so")
        log.info("mounted", extra={"volume": self._volume, "mount": self._mount})

    async def _test_path(self, test: Callable[[str], bool]) -> bool:
        try:
            async with timeout(LOOK_SECONDS):
                return await asyncio.to_thread(test, self._mount)
        except TimeoutError as error:
            raise ServiceUnavailable(
                f"the shared volume {self._mount} does not answer within {LOOK_SECONDS:g} s; check its server"
            ) from error

    async def _run(self, command: list[str]) -> None:
        program = Program(command, {}, self._layout.logs / "mount.log")
        code, child = await self._children.run("mount", program, MOUNT_SECONDS)
        if reason := explain(code, MOUNT_SECONDS):
            raise ServiceUnavailable(
                f"cannot mount {self._volume} at {self._mount}: `{' '.join(command)}`: {reason}: "
                f"{child.last_output(lines=5)}"
            )


class MountVolume(NodeStep):
    name, needs, host = "volume", (ReadConfiguration,), True

    async def check(self) -> Condition:
        try:
            usable = await self._volume().usable()
        except ServiceUnavailable:  # `apply` raises it again
            usable = False
        return DONE if usable else pending("the shared volume cannot be used")

    async def apply(self) -> None:
        await self._volume().ensure_mounted()

    def _volume(self) -> Volume:
        config, dependencies = self.run.configured.config, self.run.dependencies
        return Volume(
            config.volume,
            config.mount,
            dependencies.layout,
            self.run.children,
            dependencies.systemctl,
            dependencies.is_mount,
        )
