"""Step that provides the shared volume: an existing folder, or an EFS file system that the step mounts with TLS.

The step adds an entry to fstab, and systemd mounts the file system. Since systemd mounts the file system, the TLS
tunnel of amazon-efs-utils still runs when the node's program has ended. Because of the entry in fstab, the next boot of
the host also mounts the file system.
https://docs.aws.amazon.com/efs/latest/ug/mount-fs-auto-mount-update-fstab.html
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence

from dyntrain.node_bootstrap.core.plan import DONE, StepCondition, pending
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.node_bootstrap.host.files import write_atomically
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.processes import Children, Program, explain_exit
from dyntrain.node_bootstrap.steps.discovery import ReadConfiguration
from dyntrain.node_bootstrap.steps.run import NodeStep
from dyntrain.training.timeouts import timeout

MOUNT_OPTIONS = "_netdev,noresvport,tls"
MOUNT_SECONDS = 120.0
VOLUME_CHECK_SECONDS = 30.0  # limit for a file system whose server does not answer
log = logging.getLogger(__name__)


def fstab_with(existing: str, volume: str, mount: str) -> str:
    """Return `existing`, the text of fstab, with exactly one entry for `mount`.

    Lines for other mount points are not changed.
    """
    fstab_entry = f"{volume}:/ {mount} efs {MOUNT_OPTIONS} 0 0"
    lines = [line for line in existing.splitlines() if line.lstrip().startswith("#") or line.split()[1:2] != [mount]]
    return "".join(f"{line}\n" for line in [*lines, fstab_entry])


class Volume:
    """The shared volume.

    `volume` is the id of the EFS file system to mount, or None if the folder `mount` is the volume.
    """

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

    async def is_usable(self) -> bool:
        """Whether the volume is mounted or a folder; raises ServiceUnavailable if its server does not answer."""
        return await self._test_path(os.path.isdir if self._volume is None else self._is_mount)

    async def ensure_mounted(self) -> None:
        """Mount the shared volume if it is not mounted; on return the volume can be used.

        Raises ServiceUnavailable if the volume cannot be mounted or its server does not answer. Raises OSError if fstab
        cannot be written.
        """
        if await self.is_usable():
            return
        if self._volume is None:
            raise ServiceUnavailable(
                f"the shared volume {self._mount} does not exist; check the mount and the field mount of the node's "
                "configuration"
            )
        fstab = self._layout.fstab
        fstab_text = fstab.read_text(encoding="utf-8") if fstab.exists() else ""
        updated_fstab_text = fstab_with(fstab_text, self._volume, self._mount)
        if updated_fstab_text != fstab_text:
            write_atomically(fstab, updated_fstab_text)
        os.makedirs(self._mount, exist_ok=True)
        for systemctl_arguments in (["daemon-reload"], ["start", self._mount]):
            await self._run_systemctl([*self._systemctl, *systemctl_arguments])
        if not await self.is_usable():
            raise ServiceUnavailable(
                f"{self._volume} is not mounted at {self._mount}, although systemd reports that it is"
            )
        log.info("mounted", extra={"volume": self._volume, "mount": self._mount})

    async def _test_path(self, test: Callable[[str], bool]) -> bool:
        try:
            async with timeout(VOLUME_CHECK_SECONDS):
                return await asyncio.to_thread(test, self._mount)
        except TimeoutError as error:
            raise ServiceUnavailable(
                f"the shared volume {self._mount} does not answer within {VOLUME_CHECK_SECONDS:g} s; check its server"
            ) from error

    async def _run_systemctl(self, command: list[str]) -> None:
        program = Program(command, {}, self._layout.log_folder / "mount.log")
        exit_code, child = await self._children.run("mount", program, MOUNT_SECONDS)
        if failure_reason := explain_exit(exit_code, MOUNT_SECONDS):
            raise ServiceUnavailable(
                f"cannot mount {self._volume} at {self._mount}: `{' '.join(command)}`: {failure_reason}: "
                f"{child.last_output(lines=5)}"
            )


class MountVolume(NodeStep):
    step_name, needed_steps, prepares_host = "volume", (ReadConfiguration,), True

    async def check(self) -> StepCondition:
        try:
            volume_is_usable = await self._volume().is_usable()
        except ServiceUnavailable:  # `carry_out_step` raises it again
            volume_is_usable = False
        return DONE if volume_is_usable else pending("the shared volume cannot be used")

    async def carry_out_step(self) -> None:
        await self._volume().ensure_mounted()

    def _volume(self) -> Volume:
        config, dependencies = self.run.configured_node.config, self.run.dependencies
        return Volume(
            config.volume,
            config.mount,
            dependencies.layout,
            self.run.children,
            dependencies.systemctl,
            dependencies.is_mount,
        )
