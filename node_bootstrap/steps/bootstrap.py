"""Runs the steps of a node: always carries out the first step that is left, until no step is left."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.core.plan import (
    DONE,
    UNCHECKED,
    PlannedStep,
    Step,
    StepCondition,
    can_be_checked,
    finished_steps,
    plan,
)
from dyntrain.node_bootstrap.host.errors import GiveUp, Interrupted, MetadataUnavailable, RetryLater, ServiceUnavailable
from dyntrain.node_bootstrap.reports.alive import put_until_accepted, report_of
from dyntrain.node_bootstrap.steps.discovery import ReadConfiguration, ReadIdentity
from dyntrain.node_bootstrap.steps.environment import WriteEnvironment, process_environment
from dyntrain.node_bootstrap.steps.packages import CheckPackages
from dyntrain.node_bootstrap.steps.prepare import RunScript, WriteMarker
from dyntrain.node_bootstrap.steps.run import NodeStep, ProgramRun, RunningServices
from dyntrain.node_bootstrap.steps.service import ReportPreparation, SignalReady, SuperviseJob
from dyntrain.node_bootstrap.steps.sweep import KillEarlierProcesses
from dyntrain.node_bootstrap.steps.volume import MountVolume
from dyntrain.node_bootstrap.supervision.wiring import Ec2Node, build_services
from dyntrain.training.protocol.clocks import spread
from dyntrain.training.timeouts import timeout

STEPS: tuple[type[NodeStep], ...] = (  # in the order in which they are carried out
    KillEarlierProcesses,
    ReadIdentity,
    ReadConfiguration,
    MountVolume,
    WriteEnvironment,
    CheckPackages,
    RunScript,
    WriteMarker,
    ReportPreparation,
    SignalReady,
    SuperviseJob,
)
LAST_REPORT_SECONDS = 60.0  # time limit for the last report of a node that a person must repair
Result = TypeVar("Result")
log = logging.getLogger(__name__)


class Bootstrap:
    """Carries out the steps of one run of the node's program."""

    def __init__(self, run: ProgramRun) -> None:
        self._run = run
        self.steps: tuple[Step, ...] = tuple(step_class(run) for step_class in STEPS)
        self._host_is_ready = self._plan_logged = False

    async def run(self) -> None:
        """Carry out the steps until the node retires. Raises NodeError if the host cannot be made ready."""
        # 1. the host
        timing = self._run.dependencies.timing
        try:
            while (step := (await self._steps_left())[0].step).prepares_host:
                await call_with_retries(lambda step=step: self._carry_out_and_check(step), timing)  # type: ignore[misc]
        except GiveUp as error:
            await self._report_permanent_failure(str(error))
            raise
        self._host_is_ready = True
        # 2. prepare, report, signal, supervise
        identity = self._run.configured_node.identity
        log.info("node", extra={"base": identity.base, "master": identity.master, "private_ip": identity.private_ip})
        ec2_services = build_services(await self._make_ec2_node())
        try:
            async with asyncio.TaskGroup() as tasks:
                self._run.running_services = RunningServices(ec2_services, tasks)
                for service in (ec2_services.reporter, ec2_services.notices, *ec2_services.logs):
                    tasks.create_task(service.run())
                tasks.create_task(self._run.children.keep_logs_short(timing.log_check_seconds))
                while steps_left := await self._steps_left():
                    await steps_left[0].step.carry_out_step()
                raise Interrupted("the node is retired")  # ends the tasks
        except* Interrupted:
            pass

    async def _report_permanent_failure(self, reason: str) -> None:
        """Report a permanent failure to the controller, so that the controller does not wait for the node."""
        if (identity := self._run.identity) is None:
            return
        with suppress(TimeoutError):
            async with timeout(LAST_REPORT_SECONDS):
                report = report_of(identity, self._run.attempt, "prepare_failed", reason)
                timing = self._run.dependencies.timing
                await put_until_accepted(self._run.dependencies.reports(identity.region), report, timing)

    async def read_plan(self) -> tuple[PlannedStep, ...]:
        """Return the steps that are left, without changing anything on the host."""
        for step in self.steps:
            if step.only_reads:
                await call_with_retries(step.carry_out_step, self._run.dependencies.timing)
        return plan(await self._check_steps())

    async def _check_steps(self) -> dict[Step, StepCondition]:
        """Return the condition of each step.

        Once the host is ready, the steps that make the host ready are not checked again.
        """
        conditions: dict[Step, StepCondition] = {}
        for step in self.steps:
            if step.prepares_host and self._host_is_ready:
                conditions[step] = DONE
            else:
                conditions[step] = await step.check() if can_be_checked(step, conditions) else UNCHECKED
        return conditions

    async def _steps_left(self) -> tuple[PlannedStep, ...]:
        steps_left = plan(await self._check_steps())
        if self._run.configuration is not None and not self._plan_logged:
            self._plan_logged = True
            plan_summary = {
                "done": [step.step_name for step in finished_steps(self.steps, steps_left)],
                "left": {planned_step.step.step_name: planned_step.reason for planned_step in steps_left},
            }
            log.info("checked which steps are left", extra=plan_summary)
        return steps_left

    async def _carry_out_and_check(self, step: Step) -> None:
        await step.carry_out_step()
        if (await self._steps_left())[0].step is step:
            raise ServiceUnavailable(f"the step {step.step_name} failed: it was carried out, but its result is missing")

    async def _make_ec2_node(self) -> Ec2Node:
        configured_node, dependencies = self._run.configured_node, self._run.dependencies
        return Ec2Node(
            identity=configured_node.identity,
            config=configured_node.config,
            attempt=self._run.attempt,
            environment=await process_environment(self._run),
            layout=dependencies.layout,
            timing=dependencies.timing,
            parameters=configured_node.parameters,
            reports=dependencies.reports(configured_node.identity.region),
            metadata=self._run.metadata,
            children=self._run.children,
            coordinator=dependencies.coordinator,
            blank=dependencies.blank,
            account=dependencies.account,
        )


async def call_with_retries(step: Callable[[], Awaitable[Result]], timing: Timing) -> Result:
    """Call `step` until it does not raise RetryLater, at most `Timing.setup_tries` times.

    If the last call also raises RetryLater, the error is passed on to the caller. MetadataUnavailable is raised at
    once, since the metadata client has already retried.
    """
    for failed_tries in range(timing.setup_tries - 1):
        try:
            return await step()
        except MetadataUnavailable:
            raise
        except RetryLater as error:
            log.warning(str(error), extra={"try": failed_tries + 1, "of": timing.setup_tries})
        await asyncio.sleep(spread(timing.setup_backoff.delay(failed_tries), random.random()))
    return await step()
