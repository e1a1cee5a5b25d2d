"""Step that kills the processes that an earlier run of the node's program has left running."""

from __future__ import annotations

import logging

from dyntrain.node_bootstrap.core.plan import DONE, StepCondition, pending
from dyntrain.node_bootstrap.steps.run import NodeStep

log = logging.getLogger(__name__)


class KillEarlierProcesses(NodeStep):
    step_name, prepares_host = "sweep", True

    async def check(self) -> StepCondition:
        return DONE if self.carried_out else pending("processes of an earlier run may still exist")

    async def carry_out_step(self) -> None:
        if killed_count := await self.run.children.kill_earlier_runs():
            log.warning("killed processes of an earlier run", extra={"count": killed_count})
        self.carried_out = True
