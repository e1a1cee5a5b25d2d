"""Keeps the coordinator running on the master node, until it says that the job is over."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from controller.contract import NodeConfig
from node_bootstrap.identity import Identity
from node_bootstrap.pacing import Timing
from node_bootstrap.prepare import explain
from node_bootstrap.processes import Child, Children

log = logging.getLogger(__name__)


def coordinator_arguments(identity: Identity, config: NodeConfig) -> list[str]:
    arguments = ["--cluster", identity.cluster, "--instance-id", identity.instance_id, "--host", identity.private_ip, "--mount", config.mount]
    arguments += ["--num-workers", str(config.workers), "--min-workers", str(config.min_workers), "--max-workers", str(config.max_workers)]
    arguments += ["--segment-steps", str(config.segment_steps)] if config.segment_steps is not None else []
    arguments += ["--checkpoint-dir", config.checkpoint_dir] if config.checkpoint_dir is not None else []
    arguments += [f"--identity-keys={config.identity_keys}"] if config.identity_keys else []  # one word: a PEM begins with dashes
    return [*arguments, "--boundary", config.boundary]


class CoordinatorKeeper:
    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log_path: Path, children: Children, timing: Timing) -> None:
        self._command, self._environment, self._log_path = command, environment, log_path
        self._children, self._timing = children, timing
        self._child: Child | None = None
        self.finished = asyncio.Event()

    async def run(self) -> None:
        """Starts it again with growing pauses whenever it dies; returns once it exited with 0, which sets `finished`."""
        deaths = 0
        while True:
            began = time.monotonic()
            try:
                self._child = await self._children.start("coordinator", self._command, log_path=self._log_path, environment=self._environment)
                reason = explain(await self._child.wait(), 0.0)
                await self._child.stop()
            except OSError as error:
                reason = str(error)
            if not reason:
                log.info("the coordinator finished")
                self.finished.set()
                return
            deaths = 0 if time.monotonic() - began > self._timing.coordinator_steady else deaths
            pause = self._timing.coordinator.delay(deaths)
            deaths += 1
            log.error("the coordinator died, it is started again", extra={"reason": reason, "pause": pause})
            await asyncio.sleep(pause)
