"""What a node does for its job once it is prepared: it says so, stands ready, and supervises until it is retired."""

from __future__ import annotations

import logging

from dyntrain.controller.contract.reports import NodeReport
from dyntrain.node_bootstrap.core.marker import MarkerState
from dyntrain.node_bootstrap.core.plan import DONE, Condition, left
from dyntrain.node_bootstrap.reports.alive import report_of, tell_scripts
from dyntrain.node_bootstrap.steps.prepare import preparation, script_digest
from dyntrain.node_bootstrap.steps.run import NodeStep, PrepareResult

log = logging.getLogger(__name__)


class Report(NodeStep):
    """Once more where somebody marked a node as prepared that could not prepare itself."""

    name = "report"
    _reported: PrepareResult | None = None

    async def look(self) -> Condition:
        if self._reported is not None and self._reported is self.run.prepare_result:
            return DONE
        if self.run.prepare_result is not None and not self.run.prepare_result.prepared:
            return left("the controller is not told yet that prepare-data failed")
        return left("the controller is not told yet that this attempt is prepared")

    async def do(self) -> None:
        # kept: what becomes of the script or the marker from now on is the next life's to look at
        result = self.run.prepare_result = self.run.prepare_result or PrepareResult(True, 0, MarkerState.COUNTS.value)
        self.run.services.parts.status.report(
            "prepared" if result.prepared else "prepare_failed", result.reason, script=result.script
        )
        log.info(
            "prepared" if result.prepared else "not prepared", extra={"tries": result.tries, "reason": result.reason}
        )
        self._reported = result


class Signal(NodeStep):
    """The control channel's hello is the signal; with it the supervision of the worker begins."""

    name, only_prepared = "signal", True

    async def look(self) -> Condition:
        return DONE if self.carried_out else left("no coordinator is told yet that the node is ready")

    async def do(self) -> None:
        services = self.run.services
        services.tasks.create_task(services.parts.supervisor.run())
        self.carried_out = True


class Supervise(NodeStep):
    """Of a node that could not be prepared nobody supervises anything: it waits to be terminated, or for somebody to
    mend the script or to mark it as prepared.
    """

    name = "supervise"

    async def look(self) -> Condition:
        return DONE if self.carried_out else left("nobody has retired the node")

    async def do(self) -> None:
        result = self.run.prepare_result
        if result is not None and not result.prepared:
            self.run.prepare_result = await (await preparation(self.run)).until_mended(result)
            return
        self._tell_scripts()
        supervisor = self.run.services.parts.supervisor
        await supervisor.retire(await supervisor.until_retired())
        self.carried_out = True

    def _tell_scripts(self) -> None:
        """From base nodes alone, which are there when every other node of the cluster has failed."""
        known, services = self.run.configured, self.run.services
        script = known.config.prepare_script
        if script is None or not known.identity.base:
            return

        def made(digest: str) -> NodeReport:
            return report_of(known.identity, self.run.attempt, "alive", "prepare-data is there", digest)

        reports, timing = services.parts.reporter.reports, self.run.dependencies.timing
        services.tasks.create_task(tell_scripts(reports, lambda: script_digest(script), made, timing))
