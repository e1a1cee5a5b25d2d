"""Steps of a prepared node: the node reports its state, signals that it is ready, and supervises the job."""

from __future__ import annotations

import logging

from dyntrain.controller.contract.reports import NodeReport
from dyntrain.node_bootstrap.core.marker import MarkerState
from dyntrain.node_bootstrap.core.plan import DONE, StepCondition, pending
from dyntrain.node_bootstrap.reports.alive import report_of, report_script_changes
from dyntrain.node_bootstrap.steps.prepare import make_preparation, script_digest
from dyntrain.node_bootstrap.steps.run import NodeStep, PrepareResult

log = logging.getLogger(__name__)


class ReportPreparation(NodeStep):
    """Step that reports to the controller whether the node is prepared.

    If prepare-data has failed, the step reports again once a person has marked the node as prepared.
    """

    step_name = "report"
    _reported_result: PrepareResult | None = None

    async def check(self) -> StepCondition:
        if self._reported_result is not None and self._reported_result is self.run.prepare_result:
            return DONE
        if self.run.prepare_result is not None and not self.run.prepare_result.prepared:
            return pending("the controller has no report yet that prepare-data failed")
        return pending("the controller has no report yet that this attempt is prepared")

    async def carry_out_step(self) -> None:
        # kept, since later changes of the script or the marker concern only the next run
        prepare_result = self.run.prepare_result = self.run.prepare_result or PrepareResult(
            True, 0, MarkerState.PREPARED.value
        )
        self.run.services.ec2_services.status.report(
            "prepared" if prepare_result.prepared else "prepare_failed",
            prepare_result.reason,
            script=prepare_result.script,
        )
        log.info(
            "prepared" if prepare_result.prepared else "not prepared",
            extra={"tries": prepare_result.tries, "reason": prepare_result.reason},
        )
        self._reported_result = prepare_result


class SignalReady(NodeStep):
    """Step that starts the supervisor, whose first message to the coordinator is the ready signal."""

    step_name, skipped_after_failure = "signal", True

    async def check(self) -> StepCondition:
        return DONE if self.carried_out else pending("no coordinator has received the node's ready signal yet")

    async def carry_out_step(self) -> None:
        services = self.run.services
        services.tasks.create_task(services.ec2_services.supervisor.run())
        self.carried_out = True


class SuperviseJob(NodeStep):
    """Step that supervises the job until the node retires.

    A node that could not be prepared waits until a person repairs the script, makes the marker, or terminates the
    instance.
    """

    step_name = "supervise"

    async def check(self) -> StepCondition:
        return DONE if self.carried_out else pending("the node is not retired yet")

    async def carry_out_step(self) -> None:
        prepare_result = self.run.prepare_result
        if prepare_result is not None and not prepare_result.prepared:
            self.run.prepare_result = await (await make_preparation(self.run)).wait_until_repaired(prepare_result)
            return
        self._report_script_changes()
        supervisor = self.run.services.ec2_services.supervisor
        await supervisor.retire(await supervisor.until_retired())
        self.carried_out = True

    def _report_script_changes(self) -> None:
        """On a base node, report changes of the prepare-data script to the controller, from now on.

        Only base nodes report changes of the script, since only base nodes remain after the script has failed.
        """
        configured_node, services = self.run.configured_node, self.run.services
        script = configured_node.config.prepare_script
        if script is None or not configured_node.identity.base:
            return

        def make_report(digest: str) -> NodeReport:
            return report_of(configured_node.identity, self.run.attempt, "alive", "prepare-data exists", digest)

        reports, timing = services.ec2_services.reporter.reports, self.run.dependencies.timing
        services.tasks.create_task(report_script_changes(reports, lambda: script_digest(script), make_report, timing))
