"""One life of the bootstrap: looks what is there, and carries out the first step that is left, until none is."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.core.plan import DONE, UNSEEN, Condition, Planned, Step, can_be_seen, done, plan
from dyntrain.node_bootstrap.host.errors import GiveUp, Interrupted, MetadataUnavailable, RetryLater, ServiceUnavailable
from dyntrain.node_bootstrap.reports.alive import report_of, until_taken
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

STEPS: tuple[type[NodeStep], ...] = (  # in the order in which they are done
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
END_SECONDS = 60.0  # for the last word of a node that a person must mend
T = TypeVar("T")
log = logging.getLogger(__name__)


class Bootstrap:
    def __init__(self, run: Run) -> None:
        self._run = run
        self.steps: tuple[Step, ...] = tuple(make(run) for make in STEPS)
        self._ready = self._said = False

    async def run(self) -> None:
        """To the node's retirement. Raises NodeError when the host cannot be made ready."""
        # 1. the host
        timing = self._run.dependencies.timing
        try:
            while (step := (await self._left())[0].step).host:
                await persistently(lambda step=step: self._carry_out(step), timing)  # type: ignore[misc]
        except GiveUp as error:
            await self._tell_end(str(error))
            raise
        self._ready = True
        # 2. prepare, report, signal, supervise
        identity = self._run.configured.identity
        log.info("node", extra={"base": identity.base, "master": identity.master, "private_ip": identity.private_ip})
        parts = wire(await self._node())
        try:
            async with asyncio.TaskGroup() as tasks:
                self._run.started = Services(parts, tasks)
                for part in (parts.reporter, parts.notices, *parts.logs):
                    tasks.create_task(part.run())
                tasks.create_task(self._run.children.keep_logs_short(timing.logs))
                while left := await self._left():
                    await left[0].step.do()
                raise Interrupted("retired")  # ends the tasks
        except* Interrupted:
            pass

    async def _tell_end(self, reason: str) -> None:
        """A node that ends for good, before it could report anything, must not look as if it still prepared."""
        if (identity := self._run.identity) is None:
            return
        with suppress(TimeoutError):
            async with timeout(END_SECONDS):
                report = report_of(identity, self._run.attempt, "prepare_failed", reason)
                timing = self._run.dependencies.timing
                await until_taken(self._run.dependencies.reports(identity.region), report, timing)

    async def read_only(self) -> tuple[Planned, ...]:
        """The plan, after no more than has to be read for it."""
        for step in self.steps:
            if step.only_reads:
                await persistently(step.do, self._run.dependencies.timing)
        return plan(await self._look())

    async def _look(self) -> dict[Step, Condition]:
        """Changes nothing. Once the host was found ready it is not looked at again."""
        found: dict[Step, Condition] = {}
        for step in self.steps:
            if step.host and self._ready:
                found[step] = DONE
            else:
                found[step] = await step.look() if can_be_seen(step, found) else UNSEEN
        return found

    async def _left(self) -> tuple[Planned, ...]:
        left = plan(await self._look())
        if self._run.configuration is not None and not self._said:
            self._said = True
            found = {
                "done": [step.name for step in done(self.steps, left)],
                "left": {planned.step.name: planned.reason for planned in left},
            }
            log.info("looked what is left to do", extra=found)
        return left

    async def _carry_out(self, step: Step) -> None:
        await step.do()
        if (await self._left())[0].step is step:
            raise ServiceUnavailable(f"the step {step.name} was carried out, and what it makes is not there")

    async def _node(self) -> Ec2Node:
        known, using = self._run.configured, self._run.dependencies
        return Ec2Node(
            identity=known.identity,
            config=known.config,
            attempt=self._run.attempt,
            environment=await process_environment(self._run),
            layout=using.layout,
            timing=using.timing,
            parameters=known.parameters,
            reports=using.reports(known.identity.region),
            metadata=self._run.metadata,
            children=self._run.children,
            coordinator=using.coordinator,
            blank=using.blank,
            account=using.account,
        )


async def persistently(step: Callable[[], Awaitable[T]], timing: Timing) -> T:
    """Repeat a step that says RetryLater, `Timing.setup_tries` times in all; the last error is the caller's.

    What the metadata client could not get in its own tries is not tried again.
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
