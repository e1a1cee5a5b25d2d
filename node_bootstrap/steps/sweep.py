"""Step that kills processes which an earlier run left, and which would compete with those of this one."""

from __future__ import annotations

import logging

from dyntrain.node_bootstrap.core.plan import DONE, Condition, pending
from dyntrain.node_bootstrap.steps.run import NodeStep

log = logging.getLogger(__name__)


class Sweep(NodeStep):
    name, host = "sweep", True

    async def check(self) -> Condition:
        return DONE if self.carried_out else pending("processes of an earlier life may still run")

    async def apply(self) -> None:
        if strays := await self.run.children.sweep_earlier_lives():
            log.warning("killed processes that an earlier life left", extra={"count": strays})
        self.carried_out = True
