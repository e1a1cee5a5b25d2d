"""One run of the bootstrap, which carries out the first step that is left, until no step is left."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.core.plan import DONE, UNSEEN, Condition, Planned, Step, finished, is_observable, plan
from dyntrain.node_bootstrap.host.errors import GiveUp, Interrupted, MetadataUnavailable, RetryLater, ServiceUnavailable
from dyntrain.node_bootstrap.reports.alive import put_until_accepted, report_of
from dyntrain.node_bootstrap.steps.discovery import ReadConfiguration, ReadIdentity
from dyntrain.node_bootstrap.steps.environment import WriteEnvironment, process_environment
from dyntrain.node_bootstrap.steps.packages import CheckPackages
from dyntrain.node_bootstrap.steps.prepare import RunScript, WriteMarker
from dyntrain.node_bootstrap.steps.run import NodeStep, Run, Services
from dyntrain.node_bootstrap.steps.service import Report, Signal, Supervise
from dyntrain.node_bootstrap.steps.sweep import Sweep
from dyntrain.node_bootstrap.steps.volume import MountVolume
from dyntrain.node_bootstrap.supervision.wiring import Ec2Node, wire
from dyntrain.training.protocol.clocks import spread
from dyntrain.training.timeouts import timeout

STEPS: tuple[type[NodeStep], ...] = (  # in the order in which they are carried out
    Sweep,
    ReadIdentity,
    ReadConfiguration,
    MountVolume,
    WriteEnvironment,
    CheckPackages,
    RunScript,
    WriteMarker,
    Report,
    Signal,
    Supervise,
)
END_SECONDS = 60.0  # for the last report of a node that a person must repair
T = TypeVar("T")
log = logging.getLogger(__name__)


class Bootstrap:
    """The steps of one run, and their execution."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.steps: tuple[Step, ...] = tuple(step_class(run) for step_class in STEPS)
        self._ready = self._plan_logged = False

    async def run(self) -> None:
        """Run until the node retires. Raises NodeError if the host cannot be made ready."""
        # 1. the host
        timing = self._run.dependencies.timing
        try:
            while (step := (await self._pending())[0].step).host:
                await call_with_retries(lambda step=step: self._carry_out(step), timing)  # type: ignore[misc]
        except GiveUp as error:
            await self._report_end(str(error))
            raise
        self._ready = True
        # 2. prepare, report, signal, supervise
        identity = self._run.configured.identity
        log.info("node", extra={"base": identity.base, "master": identity.master, "private_ip": identity.private_ip})
        parts = wire(await self._node())
        try:
            async with asyncio.TaskGroup() as tasks:
                self._run.running_services = Services(parts, tasks)
                for part in (parts.reporter, parts.notices, *parts.logs):
                    tasks.create_task(part.run())
                tasks.create_task(self._run.children.keep_logs_short(timing.logs))
                while pending := await self._pending():
                    await pending[0].step.apply()
                raise Interrupted("the node is retired")  # ends the tasks
        except* Interrupted:
            pass

    async def _report_end(self, reason: str) -> None:
        """Report a permanent failure: otherwise the node would seem to be preparing still."""
        if (identity := self._run.identity) is None:
            return
        with suppress(TimeoutError):
            async with timeout(END_SECONDS):
                report = report_of(identity, self._run.attempt, "prepare_failed", reason)
                timing = self._run.dependencies.timing
                await put_until_accepted(self._run.dependencies.reports(identity.region), report, timing)

    async def read_plan(self) -> tuple[Planned, ...]:
        """Read the plan without changing anything."""
        for step in self.steps:
            if step.only_reads:
                await call_with_retries(step.apply, self._run.dependencies.timing)
        return plan(await self._check_steps())

    async def _check_steps(self) -> dict[Step, Condition]:
        """Return the condition of each step. The host's steps are not checked again once they are done."""
        conditions: dict[Step, Condition] = {}
        for step in self.steps:
            if step.host and self._ready:
                conditions[step] = DONE
            else:
                conditions[step] = await step.check() if is_observable(step, conditions) else UNSEEN
        return conditions

    async def _pending(self) -> tuple[Planned, ...]:
        pending = plan(await self._check_steps())
        if self._run.configuration is not None and not self._plan_logged:
            self._plan_logged = True
            summary = {
                "done": [step.name for step in finished(self.steps, pending)],
                "left": {planned.step.name: planned.reason for planned in pending},
            }
            log.info("checked which steps are left", extra=summary)
        return pending

    async def _carry_out(self, step: Step) -> None:
        await step.apply()
        if (await self._pending())[0].step is step:
            raise ServiceUnavailable(f"the step {step.name} was carried out, but its result is missing")

    async def _node(self) -> Ec2Node:
        configured, dependencies = self._run.configured, self._run.dependencies
        return Ec2Node(
            identity=configured.identity,
            config=configured.config,
            attempt=self._run.attempt,
            environment=await process_environment(self._run),
            layout=dependencies.layout,
            timing=dependencies.timing,
            parameters=configured.parameters,
            reports=dependencies.reports(configured.identity.region),
            metadata=self._run.metadata,
            children=self._run.children,
            coordinator=dependencies.coordinator,
            blank=dependencies.blank,
            account=dependencies.account,
        )


async def call_with_retries(step: Callable[[], Awaitable[T]], timing: Timing) -> T:
    """Call `step` until it succeeds, `Timing.setup_tries` times at most. The last RetryLater is raised.

    Failures of the metadata client, which retries by itself, are raised at once.
    """
    for tries in range(timing.setup_tries - 1):
        try:
            return await step()
        except MetadataUnavailable:
            raise
        except RetryLater as error:
            log.warning(str(error), extra={"try": tries + 1, "of": timing.setup_tries})
        await asyncio.sleep(spread(timing.setup.delay(tries), random.random()))
    return await step()
