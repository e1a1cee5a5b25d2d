"""Steps of a prepared node: report, signal readiness, and supervise until it is retired."""

from __future__ import annotations

import logging

from dyntrain.controller.contract.reports import NodeReport
from dyntrain.node_bootstrap.core.marker import MarkerState
from dyntrain.node_bootstrap.core.plan import DONE, Condition, pending
from dyntrain.node_bootstrap.reports.alive import report_of, report_script_changes
from dyntrain.node_bootstrap.steps.prepare import preparation, script_digest
from dyntrain.node_bootstrap.steps.run import NodeStep, PrepareResult

log = logging.getLogger(__name__)


class Report(NodeStep):
    """Step that reports the preparation, and reports again if a person marks a failed node as prepared."""

    name = "report"
    _reported_result: PrepareResult | None = None

    async def check(self) -> Condition:
        if self._reported_result is not None and self._reported_result is self.run.prepare_result:
            return DONE
        if self.run.prepare_result is not None and not self.run.prepare_result.prepared:
            return pending("the controller has no report yet that prepare-data failed")
        return pending("the controller has no report yet that this attempt is prepared")

    async def apply(self) -> None:
        # kept, since later changes of the script or the marker concern only the next run
        result = self.run.prepare_result = self.run.prepare_result or PrepareResult(True, 0, MarkerState.COUNTS.value)
        self.run.services.parts.status.report(
            "prepared" if result.prepared else "prepare_failed", result.reason, script=result.script
        )
        log.info(
            "prepared" if result.prepared else "not prepared", extra={"tries": result.tries, "reason": result.reason}
        )
        self._reported_result = result


class Signal(NodeStep):
    """Step that starts the supervisor, whose first message to the coordinator is the ready signal."""

    name, only_prepared = "signal", True

    async def check(self) -> Condition:
        return DONE if self.carried_out else pending("no coordinator has received the node's ready signal yet")

    async def apply(self) -> None:
        services = self.run.services
        services.tasks.create_task(services.parts.supervisor.run())
        self.carried_out = True


class Supervise(NodeStep):
    """Step that supervises the job until the node retires.

    A node that could not be prepared waits for a repaired script, a marker made by hand, or its termination.
    """

    name = "supervise"

    async def check(self) -> Condition:
        return DONE if self.carried_out else pending("the node is not retired yet")

    async def apply(self) -> None:
        result = self.run.prepare_result
        if result is not None and not result.prepared:
            self.run.prepare_result = await (await preparation(self.run)).wait_until_repaired(result)
            return
        self._report_script_changes()
        supervisor = self.run.services.parts.supervisor
        await supervisor.retire(await supervisor.until_retired())
        self.carried_out = True

    def _report_script_changes(self) -> None:
        """Report changes of prepare-data, on base nodes only: these remain when all other nodes have failed."""
        configured, services = self.run.configured, self.run.services
        script = configured.config.prepare_script
        if script is None or not configured.identity.base:
            return

        def make_report(digest: str) -> NodeReport:
            return report_of(configured.identity, self.run.attempt, "alive", "prepare-data exists", digest)

        reports, timing = services.parts.reporter.reports, self.run.dependencies.timing
        services.tasks.create_task(report_script_changes(reports, lambda: script_digest(script), make_report, timing))
