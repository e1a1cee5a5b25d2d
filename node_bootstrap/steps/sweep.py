"""Step that kills the processes of an earlier run, which would compete with those of this run."""

from __future__ import annotations

import logging

from dyntrain.node_bootstrap.core.plan import DONE, Condition, pending
from dyntrain.node_bootstrap.steps.run import NodeStep

log = logging.getLogger(__name__)


class Sweep(NodeStep):
    name, host = "sweep", True

    async def check(self) -> Condition:
        return DONE if self.carried_out else pending("processes of an earlier run may still exist")

    async def apply(self) -> None:
        if strays := await self.run.children.sweep_earlier_runs():
            log.warning("killed processes of an earlier run", extra={"count": strays})
        self.carried_out = True
